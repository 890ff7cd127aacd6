from tenuto.testing.contract.damage import *  # noqa: F403
