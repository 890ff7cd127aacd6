"""The contract of a store, as a pytest suite that every backend has to pass.

One import runs all of it: `from tenuto.testing.contract.all import *`, in a test file beside a conftest with the
fixtures `harness` (`tenuto.testing.harness.Harness`) and `store` (what its `open` gives). The tests are async
functions for the mode "auto" of pytest-asyncio. Nothing sleeps: time is a fake clock's. See docs/backends.md.
"""
