"""One node of a store, for clients at its stdin: a request a line, an answer a line, both as JSON.

    python store_worker.py CONFIG [stale-reads | lost-updates]

The second argument plants a bug: reads that no majority confirms, or changes that are acknowledged and not made.
"""

from __future__ import annotations

import sys

import msgspec
import trio

import kraft
from kraft.store.commands import Put
from kraft.store.errors import Conflict

PAIR = ("0", "1")


async def answer(store: kraft.Store, asked: dict[str, str], planted: str) -> str:
    """Do what was asked; returns what the client is told."""
    prefix, key, value = asked["prefix"], asked["key"], asked["value"].encode()
    match asked["kind"]:
        case "get":
            entry = await store.get(prefix + key, linearizable=planted != "stale-reads")
            return "" if entry is None else entry.value.decode()
        case "put":
            if planted != "lost-updates" or not asked["value"].endswith("3"):
                await store.put(prefix + key, value)
        case "pair":
            await store.transact(*(Put(prefix + each, value) for each in PAIR))
        case "swap":
            try:
                if asked["old"]:
                    await store.put(prefix + key, value, if_value=asked["old"].encode())
                else:
                    await store.put(prefix + key, value, if_absent=True)
            except Conflict:
                return "conflict"
    return "done"


async def main(path: str, planted: str) -> None:
    """Serve until stdin ends."""
    async with kraft.open_store(kraft.Config.load(path)) as store, trio.open_nursery() as nursery:
        out = trio.wrap_file(sys.stdout.buffer)

        async def serve(line: bytes) -> None:
            asked = msgspec.json.decode(line, type=dict[str, str])
            told = await answer(store, asked, planted)
            await out.write(msgspec.json.encode({"id": asked["id"], "told": told}) + b"\n")
            await out.flush()

        async for line in trio.wrap_file(sys.stdin.buffer):
            nursery.start_soon(serve, line)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
