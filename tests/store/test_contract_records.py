from tenuto.testing.contract.records import *  # noqa: F403
