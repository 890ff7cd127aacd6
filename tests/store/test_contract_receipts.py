from tenuto.testing.contract.receipts import *  # noqa: F403
