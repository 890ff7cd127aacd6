from tenuto.testing.contract.commits import *  # noqa: F403
