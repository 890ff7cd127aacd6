from tenuto.testing.contract.all import *  # noqa: F403
