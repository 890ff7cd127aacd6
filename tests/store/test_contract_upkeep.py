from tenuto.testing.contract.upkeep import *  # noqa: F403
