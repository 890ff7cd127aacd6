"""The command line: `tenuto graph`, `tenuto state`, `tenuto session`, `tenuto schedule` and `tenuto worker`."""

from importlib.metadata import version
from typing import Annotated

import typer

from tenuto.cli.exit_code import Commands
from tenuto.cli.graph_commands import graphs
from tenuto.cli.schedule_commands import schedules
from tenuto.cli.session_commands import sessions
from tenuto.cli.state_commands import states
from tenuto.cli.worker_command import worker

app = typer.Typer(cls=Commands, help="Tenuto holds an agent's session.", no_args_is_help=True)
app.add_typer(graphs, name="graph")
app.add_typer(states, name="state")
app.add_typer(sessions, name="session")
app.add_typer(schedules, name="schedule")
app.command("worker")(worker)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tenuto {version('tenuto')}")
        raise typer.Exit


@app.callback()
def main_options(
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Tenuto holds an agent's session: one identity, one typed state, one transcript."""


def main() -> None:
    """Run the command line."""
    app(prog_name="tenuto")


if __name__ == "__main__":
    main()
