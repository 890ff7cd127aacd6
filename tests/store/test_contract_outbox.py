from tenuto.testing.contract.outbox import *  # noqa: F403
