from tenuto.testing.contract.stops import *  # noqa: F403
