"""A replicated dictionary on `kraft.Store`: what a user writes."""

from __future__ import annotations

import sys

import trio

from kraft import Config, open_store


async def main(path: str) -> None:
    async with open_store(Config.load(path)) as store:
        version = await store.put("greeting", b"hello")
        print("put", version, flush=True)
        entry = await store.get("greeting")
        assert entry is not None
        print("got", entry.value.decode(), flush=True)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
