from tenuto.testing.contract.inputs import *  # noqa: F403
