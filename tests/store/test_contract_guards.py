from tenuto.testing.contract.guards import *  # noqa: F403
