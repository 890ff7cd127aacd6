from tenuto.testing.contract.forks import *  # noqa: F403
