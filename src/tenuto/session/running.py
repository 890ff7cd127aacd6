"""The runs of this process, and how to tell that nobody is at work on a run any more."""

from tenuto.model.run import Run
from tenuto.store.host import worker_is_dead, worker_name

running_here: set[str] = set()
"""The runs that turns of this process are about to begin, or have begun and not let go of."""


def is_let_go(run: Run) -> bool:
    """Tell whether a running run's runner is proven gone: its process is, or it is this one and let go of the run."""
    return worker_is_dead(run.worker) or (run.worker == worker_name() and run.run_id not in running_here)
