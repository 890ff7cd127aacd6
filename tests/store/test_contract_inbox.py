from tenuto.testing.contract.inbox import *  # noqa: F403
