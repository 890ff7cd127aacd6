from tenuto.testing.contract.tenants import *  # noqa: F403
