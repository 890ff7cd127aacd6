from tenuto.testing.contract.events import *  # noqa: F403
