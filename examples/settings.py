"""Programs follow a setting as it changes, and no change is missed or seen twice.

In a checkout:

    $ python3 examples/settings.py
    changed: log level = debug
    changed: log level = info
    changed: log level is gone
"""

import asyncio
import tempfile

from nightly_lock import one_voter

import kraft.asyncio


async def follow(store: kraft.asyncio.Store, after: int) -> None:
    changes = 0
    async for event in store.watch("log ", after=after):
        print("changed:", event.key, "is gone" if event.value is None else f"= {event.value.decode()}")
        changes += 1
        if changes == 3:
            return


async def main(folder: str) -> None:
    async with kraft.asyncio.open_store(one_voter(folder)) as store:
        page = await store.scan("log ")
        following = asyncio.create_task(follow(store, page.revision))
        await store.put("log level", b"debug")
        await store.put("log level", b"info")
        await store.delete("log level")
        await following


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        asyncio.run(main(home))
