"""What simulated runs had left out: stores and their recipes, expressions that meet new topics, deletions beside open
transactions, and cleaners. Short runs and cases, each for one of them.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import kraft
from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups.classic import ClassicGroups
from kraft.coordinators.groups.offsets import delete_group
from kraft.coordinators.groups.state import GroupsState, end_transaction, replay_groups
from kraft.coordinators.runtime.shard import Context, Record
from kraft.coordinators.runtime.timers import Timers
from kraft.handling.coordinators import Counted
from kraft.partitions.log.cleaning.choice import cleanable
from kraft.partitions.log.partition_log import PartitionLog
from kraft.sim.runs.seeded_run import Result
from kraft.sim.search.seed_search import SeedSearch
from kraft.store import Put
from kraft.testing import Cluster
from metadata_log.image import MetadataImage
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from metadata_log.serde.codec import finished
from support.broker.broker_logs import NOW_MS
from support.broker.consumer_world import World, image_of, places
from support.broker.dirty_logs import OPTIONS, Producers


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_runs_of_stores(seed: int) -> None:
    assert isinstance(SeedSearch(members="store").run(seed), Result)


@pytest.mark.parametrize("seed", [23, 70])
def test_runs_that_forget(seed: int) -> None:
    assert isinstance(SeedSearch(members="coordinator-cluster").run(seed), Result)


def test_an_expression_meets_a_new_topic_within_its_pause() -> None:
    """Long before the next regular look."""
    world = World({"rx-1": 1})
    world.join("one", subscribed_topic_regex="rx-.*")
    world.wait(1000)
    world.send("one", 1)
    world.image = image_of({"rx-1": 1, "rx-2": 1}, 20)
    world.wait(10_001)
    world.send("one", 2)
    world.wait(1000)
    assert places(world.send("one", 2)) == {"rx-1": [0], "rx-2": [0]}


@pytest.mark.parametrize("seed", range(6))
def test_a_cleaner_stays_below_open_transactions(seed: int) -> None:
    """Whatever was written, and however it is divided into segments."""
    disk = MemoryDisk()
    disk.mkdir("t-0")
    log = PartitionLog.open(disk, "t-0", OPTIONS, now_ms=NOW_MS)
    producers = Producers(log, Random(f"in runs {seed}"))
    for _ in range(10):
        producers.write(8)
        log.raise_high_watermark(log.end_offset)
        assert cleanable(log, now_ms=NOW_MS).end_offset <= max(log.last_stable_offset, log.start_offset)


def test_a_deleted_group_leaves_nothing_in_open_transactions() -> None:
    """Their ends would bring the offsets back."""
    place, state = ("orders", 0), GroupsState()
    for producer_id, topic in ((-1, "orders"), (7, "orders"), (8, "others")):
        record = OffsetCommitKey("g", topic, 0), OffsetCommitValue(5, -1, "", NOW_MS, -1)
        state = replay_groups(state, Record(*record), 0, producer_id)
    context = Context(state, NOW_MS, MetadataImage(), Timers(), Random(0), lambda *_: None)
    for record_of in delete_group("g", ClassicGroups(GroupConfig(), Counted()), context).records:
        state = replay_groups(state, record_of, 9, -1)
    for producer_id in (7, 8):
        state = finished(end_transaction(state, producer_id, is_commit=True))
    assert not state.offsets
    assert not state.is_known("g", place)


class Hesitating(kraft.Store):
    """A party that counts the others, and opens a barrier, when a test says so."""

    def __init__(self, node: Any) -> None:
        super().__init__(node)
        self.may_count, self.may_open = trio.Event(), trio.Event()

    async def scan(self, *given: Any, **more: Any) -> Any:
        await self.may_count.wait()
        return await super().scan(*given, **more)

    async def transact(self, *operations: Any, **more: Any) -> int:
        if isinstance(operations[0], Put):
            await self.may_open.wait()
        return await super().transact(*operations, **more)


async def test_a_barrier_that_is_opened_late_stays_closed_for_the_next_round(autojump_clock: MockClock) -> None:
    """Two parties count both; one opens, and a third one comes before the other one gets so far."""
    async with Cluster(controllers=1, seed=1, state_machine=kraft.StoreMachine) as cluster:
        node = cluster.machine(await cluster.leader())
        first, second = Hesitating(node), Hesitating(node)
        left: list[str] = []

        async def party(name: str, store: kraft.Store) -> None:
            await kraft.Barrier(store, "b", 2).wait()
            left.append(name)

        with trio.fail_after(100):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(party, "first", first)
                nursery.start_soon(party, "second", second)
                await trio.sleep(1)
                first.may_count.set()
                second.may_count.set()
                first.may_open.set()
                await trio.sleep(1)
                nursery.start_soon(party, "third", kraft.Store(node))
                await trio.sleep(1)
                second.may_open.set()
                await trio.sleep(1)
                assert sorted(left) == ["first", "second"]
                nursery.cancel_scope.cancel()
