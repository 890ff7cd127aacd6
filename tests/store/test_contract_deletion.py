from tenuto.testing.contract.deletion import *  # noqa: F403
