from tenuto.testing.contract.histories import *  # noqa: F403
