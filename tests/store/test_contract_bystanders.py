from tenuto.testing.contract.bystanders import *  # noqa: F403
