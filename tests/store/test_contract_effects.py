from tenuto.testing.contract.effects import *  # noqa: F403
