from tenuto.testing.contract.values import *  # noqa: F403
