"""A second process: it opens a store by its address, reads everything, and says what it found as one digest.

Each line it is given names an address and its options, as JSON; each line it writes is a digest, or what went wrong.
"""

import asyncio
import json
import sys
from hashlib import sha256
from typing import Any

from tenuto import open_store
from tests.fuzz.reading import read_all, steady


def digest_of(found: Any) -> str:
    """Return a digest that is equal for equal values, whatever process read them."""
    return sha256(repr(_ordered(found)).encode(errors="surrogatepass")).hexdigest()


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted(((str(name), _ordered(part)) for name, part in value.items()), key=lambda pair: pair[0])
    if isinstance(value, list | tuple):
        return [_ordered(part) for part in value]
    return str(value) if isinstance(value, str) else value


async def _read(address: str, options: dict[str, Any]) -> str:
    async with open_store(address, **options) as store:
        return digest_of(steady(await read_all(store)))


def main() -> None:
    """Answer one line after the other."""
    sys.set_int_max_str_digits(0)
    for line in sys.stdin:
        address, options = json.loads(line)
        try:
            said = asyncio.run(_read(address, options))
        except Exception as error:
            said = f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
        print(said, flush=True)


if __name__ == "__main__":
    main()
