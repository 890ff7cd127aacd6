from tenuto.testing.contract.lanes import *  # noqa: F403
