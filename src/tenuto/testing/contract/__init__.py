"""The contract of a store, as a pytest suite that every backend has to pass whole.

To certify a backend of your own, give pytest two fixtures and import the modules:

    @pytest.fixture
    async def harness(): ...          # see tenuto.testing.harness.Harness

    @pytest.fixture
    async def store(harness):
        return await harness.open()

    from tenuto.testing.contract.records import *
    from tenuto.testing.contract.commits import *
    ...

The tests are plain async functions (asyncio_mode = "auto"). Nothing sleeps: time is a fake clock's.
"""
