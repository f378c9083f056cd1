"""Stores on running nodes, in virtual time: any node answers, leases end, watches have no gap, recipes hold."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random

import pytest
import trio
from trio.testing import MockClock

import kraft
from kraft.store import Clear, Event, Put
from kraft.testing import Cluster
from transport.faults import Faults

LONG_S = 120


@asynccontextmanager
async def stores(seed: int, **given: object) -> AsyncIterator[tuple[Cluster, dict[int, kraft.Store]]]:
    """A cluster of three, and the store of each node."""
    with trio.fail_after(3600):
        async with Cluster(controllers=3, seed=seed, state_machine=kraft.StoreMachine, **given) as cluster:  # type: ignore[arg-type]  # its own words
            await cluster.leader()
            yield cluster, {node_id: kraft.Store(cluster.machine(node_id)) for node_id in cluster.ids}
            if "settings" not in given:
                cluster.check()


async def test_a_read_that_may_be_old_needs_no_quorum_until_it_is_too_old(autojump_clock: MockClock) -> None:
    async with stores(31) as (cluster, nodes):
        leader = await cluster.leader()
        cut = cluster.others(leader)[0]
        await nodes[leader].put("a", b"1")
        assert await nodes[cut].get("a") is not None
        cluster.network.partition({cut}, cluster.others(cut))
        await nodes[leader].put("a", b"2")
        began = trio.current_time()
        await trio.sleep(5)
        old = await nodes[cut].get("a", max_age=6)
        assert old is not None
        assert old.value == b"1"
        page = await nodes[cut].scan(linearizable=False)
        assert page.age >= trio.current_time() - began
        with trio.move_on_after(60) as waited:
            await nodes[cut].get("a", max_age=5)
        assert waited.cancelled_caught
        cluster.network.heal()
        new = await nodes[cut].get("a", max_age=5)
        assert new is not None
        assert new.value == b"2"
        assert nodes[cut].age() < 60


async def test_a_watch_has_no_gap_while_nodes_die_and_snapshots_come(autojump_clock: MockClock) -> None:
    settings = {
        "metadata.log.max.record.bytes.between.snapshots": "2000",
        "metadata.log.segment.bytes": "8388608",
        "internal.metadata.log.segment.bytes": "1024",
        "metadata.max.retention.bytes": "1000",
    }
    async with stores(4, settings=settings) as (cluster, nodes):
        leader = await cluster.leader()
        late = cluster.others(leader)[0]
        page = await nodes[late].scan()
        watch = nodes[late].watch("w/", after=page.revision)
        one = nodes[late].watch(key="w/7", after=page.revision)
        cluster.network.partition({late}, cluster.others(late))
        for number in range(200):
            await nodes[leader].put(f"w/{number}", b"")
            await nodes[leader].put(f"other/{number}", b"")
        with trio.move_on_after(70):
            await trio.sleep_forever()
        assert cluster.node(leader).status().log_start_offset > 0
        cluster.network.heal()
        with trio.fail_after(LONG_S):
            events = [await anext(watch) for _ in range(200)]
            assert (await anext(one)).key == "w/7"
        assert [event.key for event in events] == [f"w/{number}" for number in range(200)]
        revisions = [event.revision for event in events]
        assert revisions == sorted(set(revisions))
        # From the middle, at another node, after all of that.
        again = nodes[leader].watch("w/", after=events[99].revision)
        assert [await anext(again) for _ in range(100)] == events[100:]


async def test_a_watch_from_before_the_kept_history_says_so(autojump_clock: MockClock) -> None:
    with trio.fail_after(LONG_S):
        machine = partial(kraft.StoreMachine, history=4)
        async with Cluster(controllers=1, seed=5, state_machine=machine) as cluster:
            store = kraft.Store(cluster.machine(1))
            watch = store.watch(after=0)
            assert await store.put("a", b"1") == 1
            assert await anext(watch) == Event(1, "a", b"1")
            for number in range(20):
                await store.put("a", b"%d" % number)
            with pytest.raises(kraft.Compacted, match="the changes after revision 1 are not kept") as refused:
                await anext(watch)
            again = store.watch(after=refused.value.revision)
            assert (await anext(again)).revision == refused.value.revision + 1
            await cluster.stop(1)
            async for event in again:
                assert event.key == "a"


async def test_a_lease_ends_with_its_holder_and_not_before(autojump_clock: MockClock) -> None:
    async with stores(6) as (cluster, nodes):
        leader = await cluster.leader()
        holder, other = cluster.others(leader)
        async with nodes[holder].lease(5) as lease:
            await nodes[holder].put("mine", b"", lease=lease)
            await trio.sleep(60)
            assert await nodes[other].get("mine") is not None
            watch = nodes[other].watch(key="mine")
        # Given back at the end of the block.
        assert (await anext(watch)).value is None
        assert not lease.is_held
        with pytest.raises(kraft.LeaseLost):
            await nodes[holder].put("mine", b"", lease=lease)

        killed: list[float] = []

        async def hold_until_killed() -> None:
            async with nodes[holder].lease(5) as lease:
                await nodes[holder].put("mine", b"", lease=lease)
                killed.append(trio.current_time())
                await cluster.kill(holder)
                await trio.sleep_forever()

        with pytest.raises(kraft.NodeStopped):
            await hold_until_killed()
        watch = nodes[other].watch(key="mine")
        with trio.fail_after(LONG_S):
            while (await anext(watch)).value is not None:
                pass
        assert 3 <= trio.current_time() - killed[0] < 5 + 3


async def test_a_holder_that_is_cut_off_gives_up_before_the_quorum_does(autojump_clock: MockClock) -> None:
    async with stores(7) as (cluster, nodes):
        leader = await cluster.leader()
        holder, other = cluster.others(leader)
        lost = gone = 0.0

        async def hold() -> None:
            async with nodes[holder].lease(6) as lease:
                await nodes[holder].put("mine", b"", lease=lease)
                cluster.network.partition({holder}, cluster.others(holder))
                await trio.sleep_forever()

        async def hold_and_lose() -> None:
            nonlocal lost
            with pytest.raises(kraft.LeaseLost, match="could not be renewed in 6"):
                await hold()
            lost = trio.current_time()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold_and_lose)
            watch = nodes[other].watch(key="mine")
            while (await anext(watch)).value is not None:
                pass
            gone = trio.current_time()
        assert 0 < gone - (lost - 2) < 10
        assert lost - 2 <= gone, "the revocation waits two seconds for the quorum"
        cluster.network.heal()


@pytest.mark.parametrize("seconds", [2.5, 10])
async def test_a_lease_that_waited_long_for_a_leader_lives_as_long_as_any(
    seconds: float, autojump_clock: MockClock
) -> None:
    async with stores(39) as (cluster, nodes):
        leader = await cluster.leader()
        holder = cluster.others(leader)[0]
        for node_id in cluster.ids:
            cluster.network.partition({node_id}, cluster.others(node_id))

        async def heal() -> None:
            await trio.sleep(seconds)
            cluster.network.heal()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(heal)
            async with kraft.Lock(nodes[holder], "it", ttl=3) as held:
                await trio.sleep(30)
                assert held.is_held


async def test_a_block_that_ends_as_its_lease_is_lost_has_one_error(autojump_clock: MockClock) -> None:
    async with stores(9) as (cluster, nodes):
        holder = cluster.others(await cluster.leader())[0]

        async def fail_later() -> None:
            async with nodes[holder].lease(6) as lease:
                cluster.network.partition({holder}, cluster.others(holder))
                with trio.CancelScope(shield=True):
                    await trio.sleep(10)
                assert not lease.is_held
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail_later()
        cluster.network.heal()
        began = trio.current_time()
        with trio.CancelScope() as scope:
            async with nodes[holder].lease(6):
                scope.deadline = began + 6
                cluster.network.partition({holder}, cluster.others(holder))
                await trio.sleep_forever()
        assert scope.cancelled_caught, "whoever cancels a block at the same moment gets no error at all"
        cluster.network.heal()


async def test_an_outage_of_the_whole_quorum_ends_no_lease(autojump_clock: MockClock) -> None:
    async with stores(8) as (cluster, nodes):
        leader = await cluster.leader()
        holder = cluster.others(leader)[0]
        async with nodes[leader].lease(5) as lease:
            await nodes[leader].put("mine", b"", lease=lease)
            for node_id in cluster.ids:
                if node_id != leader:
                    await cluster.kill(node_id)
            await trio.sleep(4)
            for node_id in cluster.ids:
                if node_id != leader:
                    await cluster.restart(node_id)
            await cluster.leader()
            await trio.sleep(20)
            assert await nodes[leader].get("mine") is not None
        assert holder in cluster.running


# Recipes


async def hold_under_faults(seed: int, seconds: float) -> int:
    """Clients at all nodes hold one lock, in a bad network, while nodes die; a resource looks at their tokens."""
    rng = Random(f"locks {seed}")
    highest = count = 0
    faults = Faults(drop=0.02, delay_ms=(1, 30), reorder=True)
    async with Cluster(controllers=3, seed=seed, state_machine=kraft.StoreMachine, faults=faults) as cluster:
        await cluster.leader()

        async def client(number: int) -> None:
            nonlocal highest, count
            mine = Random(f"client {seed} {number}")
            while True:
                await trio.sleep(mine.random())
                node_id = mine.choice(cluster.ids)
                if node_id not in cluster.running:
                    continue
                try:
                    async with kraft.Lock(kraft.Store(cluster.machine(node_id)), "it", 3) as held:
                        # Nobody holds it with the same or an older token than one that was seen before.
                        assert held.token > highest
                        highest = held.token
                        count += 1
                        await trio.sleep(mine.random() * 2)
                        assert held.token == highest, "another one came, and this one was not told"
                except (kraft.NodeStopped, kraft.LeaseLost):
                    pass

        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(client, number)
            ends = trio.current_time() + seconds
            while trio.current_time() < ends:
                await trio.sleep(rng.random() * 10)
                node_id = rng.choice(cluster.ids)
                match rng.choice(("kill", "cut", "nothing")):
                    case "kill":
                        await cluster.kill(node_id)
                        await trio.sleep(rng.random() * 8)
                        await cluster.restart(node_id)
                    case "cut":
                        cluster.network.partition({node_id}, cluster.others(node_id))
                        await trio.sleep(rng.random() * 12)
                        cluster.network.heal()
            nursery.cancel_scope.cancel()
        cluster.check()
    return count


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, 60))])
async def test_no_two_hold_a_lock_while_nodes_fail(seed: int, autojump_clock: MockClock) -> None:
    assert await hold_under_faults(seed, 60) > 5


async def test_a_clear_removes_what_a_transaction_names(autojump_clock: MockClock) -> None:
    async with stores(18) as (_, nodes):
        await nodes[1].transact(Put("a/1", b""), Put("a/2", b""), Put("b", b""))
        watch = nodes[2].watch("a/", after=0)
        await nodes[2].transact(Clear("a/"), Put("b", b"2"))
        events = [await anext(watch) for _ in range(4)]
        assert [(event.key, event.value) for event in events] == [
            ("a/1", b""),
            ("a/2", b""),
            ("a/1", None),
            ("a/2", None),
        ]
        for part in range(10):
            await nodes[1].transact(*(Put(f"c/{part}/{number}", b"") for number in range(120)))
        assert await nodes[1].clear("c/") == 1200, "more than one transaction removes"
