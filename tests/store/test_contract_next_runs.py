from tenuto.testing.contract.next_runs import *  # noqa: F403
