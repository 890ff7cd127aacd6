from tenuto.testing.contract.lists import *  # noqa: F403
