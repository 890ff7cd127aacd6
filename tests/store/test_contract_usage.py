from tenuto.testing.contract.usage import *  # noqa: F403
