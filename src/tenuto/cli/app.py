"""The command line: `tenuto graph`, `tenuto state`, `tenuto session` and `tenuto worker`."""

import typer

from tenuto.cli.graph_commands import graphs
from tenuto.cli.session_commands import sessions
from tenuto.cli.state_commands import states
from tenuto.cli.worker_command import worker

app = typer.Typer(help="Tenuto holds an agent's session.", no_args_is_help=True, add_completion=False)
app.add_typer(graphs, name="graph")
app.add_typer(states, name="state")
app.add_typer(sessions, name="session")
app.command("worker")(worker)


@app.callback()
def main_options() -> None:
    """Tenuto holds an agent's session: one identity, one typed state, one transcript."""


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
