"""The database of a demonstration, which all of its processes open."""

from contextlib import AbstractAsyncContextManager

from tenuto import Store, open_store


def database(folder: str) -> AbstractAsyncContextManager[Store]:
    """Open the store in this folder."""
    return open_store(f"sqlite:///{folder}/tenuto.db")
