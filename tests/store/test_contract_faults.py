from tenuto.testing.contract.faults import *  # noqa: F403
