from tenuto.testing.contract.documents import *  # noqa: F403
