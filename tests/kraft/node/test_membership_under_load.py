"""A quorum that grows from one node to five, is replaced node by node, and shrinks to one, while it is written to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio

import kraft

SETTINGS = {
    "controller.quorum.election.timeout.ms": "150",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.fetch.timeout.ms": "1000",
    # Snapshots are due often, so that nodes that join begin with one.
    "metadata.log.max.record.bytes.between.snapshots": "100000",
}


class Quorum:
    """Nodes of one store, each in a task of its own."""

    def __init__(self, directory: Path, tasks: trio.Nursery) -> None:
        self._directory = directory
        self._tasks = tasks
        self._made = 0
        self.stores: dict[int, kraft.Store] = {}
        self._ends: dict[int, trio.Event] = {}

    @property
    def addresses(self) -> str:
        return ",".join(str(store.node.endpoints[0]) for store in self.stores.values())

    async def grow(self) -> None:
        """One node more, which votes."""
        self._made += 1
        self.stores[self._made] = await self._tasks.start(self._run, self._made)

    async def _run(self, node_id: int, task_status: trio.TaskStatus[kraft.Store]) -> None:
        directory = f"{self._directory}/{node_id}"
        if node_id == 1:
            opened = kraft.create_store(directory, node_id=1, settings=SETTINGS)
        else:
            opened = kraft.join_store(self.addresses, directory, node_id=node_id, settings=SETTINGS)
        async with opened as store:
            end = self._ends[node_id] = trio.Event()
            task_status.started(store)
            await end.wait()

    async def shrink(self, node_id: int) -> None:
        """One node less: it leaves the voters, and ends."""
        other = next(store for one, store in self.stores.items() if one != node_id)
        await other.node.remove_voter(node_id)
        assert node_id not in [voter.id for voter in other.node.voters]
        del self.stores[node_id]
        self._ends[node_id].set()

    def close(self) -> None:
        for end in self._ends.values():
            end.set()

    @property
    def leader(self) -> int:
        return next(one for one, store in self.stores.items() if store.node.is_active)


async def change_everything(quorum: Quorum, rounds: int) -> list[int]:
    """Grow 1 → 3 → 5, replace each node, the leader among them, and shrink to 1; returns the sizes on the way."""
    sizes = []
    for _ in range(rounds):
        while len(quorum.stores) < 5:
            await quorum.grow()
            sizes.append(len(quorum.stores))
        for node_id in list(quorum.stores):
            await quorum.grow()
            await quorum.shrink(node_id)
            sizes.append(len(quorum.stores))
        while len(quorum.stores) > 1:
            await quorum.shrink(next(iter(quorum.stores)))
            sizes.append(len(quorum.stores))
    return sizes


@pytest.mark.parametrize(
    ("writers", "rounds"), [pytest.param(2, 1, id="slice"), pytest.param(16, 10, id="soak", marks=pytest.mark.soak)]
)
async def test_the_voters_change_wholly_under_load(tmp_path: Path, writers: int, rounds: int) -> None:
    """No acknowledged write is lost and no read is stale, and all is done by the API of `kraft` alone."""
    with trio.fail_after(60 + 60 * rounds):
        async with trio.open_nursery() as tasks:
            await run(Quorum(tmp_path, tasks), writers, rounds)


async def run(quorum: Quorum, writers: int, rounds: int) -> None:
    """Change everything while writers write, and look at what they have written."""
    acknowledged: Counter[str] = Counter()
    await quorum.grow()

    async def write(store: kraft.Store, key: str) -> None:
        number = 0
        while True:
            number += 1
            await store.put(key, b"%d" % number)
            acknowledged[key] = number
            entry = await store.get(key)
            assert entry is not None
            assert int(entry.value) == number

    async with kraft.connect_store(quorum.addresses, settings=SETTINGS) as client, trio.open_nursery() as nursery:
        for number in range(writers):
            nursery.start_soon(write, client, f"k/{number}")
        # The client follows the quorum to nodes that it did not know at the beginning.
        sizes = await change_everything(quorum, rounds)
        before = dict(acknowledged)
        while before.keys() != acknowledged.keys() or any(acknowledged[key] <= before[key] for key in before):
            await client.node.wait_for_applied()
        nursery.cancel_scope.cancel()
    assert (max(sizes), min(sizes), sizes[-1]) == (5, 1, 1)
    (last,) = quorum.stores.values()
    assert [voter.id for voter in last.node.voters] == [quorum.leader]
    page = await last.scan("k/")
    assert {entry.key for entry in page.entries} == acknowledged.keys()
    assert all(int(entry.value) >= acknowledged[entry.key] for entry in page.entries)
    quorum.close()
