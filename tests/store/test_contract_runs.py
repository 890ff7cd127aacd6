from tenuto.testing.contract.runs import *  # noqa: F403
