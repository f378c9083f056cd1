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
from kraft.store import Append, Clear, Delete, Event, Held, IfVersion, Leader, Put
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


async def test_every_node_reads_what_any_node_has_written(autojump_clock: MockClock) -> None:
    async with stores(1) as (_, nodes):
        assert await nodes[1].get("a") is None
        version = await nodes[1].put("a", b"1")
        for node in nodes.values():
            entry = await node.get("a")
            assert entry is not None
            assert (entry.value, entry.version, entry.created) == (b"1", version, version)
        assert await nodes[2].put("a", b"2") == version + 1
        assert await nodes[3].delete("a")
        assert not await nodes[1].delete("a")
        assert await nodes[2].get("a") is None
        with pytest.raises(kraft.CommandRefused, match="at most 1024 bytes"):
            await nodes[1].put("k" * 2000, b"")


async def test_a_change_is_made_only_if_its_conditions_hold(autojump_clock: MockClock) -> None:
    async with stores(2) as (_, nodes):
        first = await nodes[1].put("a", b"1", if_absent=True)
        for asked in (
            partial(nodes[2].put, "a", b"2", if_absent=True),
            partial(nodes[2].put, "a", b"2", if_version=0),
            partial(nodes[2].put, "a", b"2", if_value=b"2"),
            partial(nodes[2].delete, "a", if_version=first + 1),
            partial(nodes[2].transact, Put("b", b""), Delete("c"), conditions=(IfVersion("a", 7),)),
        ):
            with pytest.raises(kraft.Conflict, match=f"'a' has version {first}") as refused:
                await asked()
            assert refused.value.entry is not None
            assert refused.value.entry.value == b"1"
        with pytest.raises(kraft.Conflict, match="'b' does not exist"):
            await nodes[2].put("b", b"", if_value=b"")
        assert await nodes[2].put("a", b"2", if_version=first) == first + 1
        assert await nodes[3].transact(Put("b", b""), Append("q/", b"x"), Delete("a")) == first + 2
        assert [one.key for one in (await nodes[1].scan()).entries] == ["b", f"q/{first + 2:020}"]


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


async def test_keys_are_read_in_pages_and_cleared_by_prefix(autojump_clock: MockClock) -> None:
    async with stores(3) as (_, nodes):
        for begin in range(0, 1200, 100):
            await nodes[1].transact(*(Put(f"k/{number:04}", b"") for number in range(begin, begin + 100)))
        await nodes[1].put("other", b"")
        page = await nodes[2].scan("k/", limit=700)
        assert not page.is_last
        rest = await nodes[2].scan("k/", after=page.entries[-1].key)
        assert rest.is_last
        assert [one.key for one in page.entries + rest.entries] == [f"k/{number:04}" for number in range(1200)]
        assert await nodes[3].clear("k/") == 1200
        assert [one.key for one in (await nodes[1].scan()).entries] == ["other"]


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


async def test_a_lock_has_one_holder_and_rising_tokens(autojump_clock: MockClock) -> None:
    async with stores(10) as (cluster, nodes):
        inside: list[int] = []
        tokens: list[int] = []

        async def work(node_id: int) -> None:
            for _ in range(5):
                async with kraft.Lock(nodes[node_id], "jobs") as held:
                    assert inside == []
                    inside.append(node_id)
                    tokens.append(held.token)
                    await trio.sleep(0.1)
                    inside.remove(node_id)

        async with trio.open_nursery() as nursery:
            for node_id in cluster.ids:
                nursery.start_soon(work, node_id)
        assert len(tokens) == 15
        assert tokens == sorted(set(tokens))
        lock = kraft.Lock(nodes[1], "jobs")
        async with lock:
            with pytest.raises(RuntimeError, match="each holder makes its own"):
                async with lock:
                    pass
            with trio.move_on_after(5) as waited:
                async with kraft.Lock(nodes[2], "jobs"):
                    pass
            assert waited.cancelled_caught
            async with kraft.Lock(nodes[2], "jobs/2"), kraft.Lock(nodes[2], "job"):
                pass


async def test_a_block_fails_with_its_own_error(autojump_clock: MockClock) -> None:
    async with stores(11) as (_, nodes):
        with pytest.raises(ZeroDivisionError):
            async with kraft.Lock(nodes[1], "jobs"):
                _ = 1 / 0
        with trio.fail_after(1):
            async with kraft.Lock(nodes[2], "jobs"):
                pass


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


async def test_a_semaphore_admits_so_many(autojump_clock: MockClock) -> None:
    async with stores(12) as (cluster, nodes):
        inside = most = 0

        async def work(node_id: int) -> None:
            nonlocal inside, most
            async with kraft.Semaphore(nodes[node_id], "pool", 2):
                inside += 1
                most = max(most, inside)
                await trio.sleep(1)
                inside -= 1

        async with trio.open_nursery() as nursery:
            for node_id in cluster.ids * 2:
                nursery.start_soon(work, node_id)
        assert most == 2


async def test_an_election_has_a_leader_whom_all_observe(autojump_clock: MockClock) -> None:
    async with stores(13) as (cluster, nodes):
        observed: list[Leader | None] = []
        elections = {node_id: kraft.Election(nodes[node_id], "boss", 5) for node_id in cluster.ids}

        async def observe() -> None:
            async for leader in elections[3].observe():
                observed.append(leader)  # noqa: PERF401 (it never ends)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(observe)
            async with elections[1].campaign(b"one") as first:
                assert await elections[2].leader() == Leader(b"one", first.token)
            async with elections[2].campaign(b"two") as second:
                assert second.token > first.token
                assert await elections[1].leader() == Leader(b"two", second.token)
            assert await elections[1].leader() is None
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        assert observed == [None, Leader(b"one", first.token), None, Leader(b"two", second.token), None]


async def test_a_leader_that_dies_is_replaced(autojump_clock: MockClock) -> None:
    async with stores(14) as (cluster, nodes):
        leader = await cluster.leader()
        dying, other = cluster.others(leader)
        held: list[Held] = []
        leads = trio.Event()

        async def lead() -> None:
            async with kraft.Election(nodes[dying], "boss", 4).campaign() as mine:
                held.append(mine)
                leads.set()
                await cluster.kill(dying)
                await trio.sleep_forever()

        async def first() -> None:
            with pytest.raises(kraft.NodeStopped):
                await lead()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(first)
            await leads.wait()
            with trio.fail_after(10):
                async with kraft.Election(nodes[other], "boss", 4).campaign() as mine:
                    assert mine.token > held[0].token
                    assert not held[0].is_held


async def test_a_barrier_opens_when_all_wait_again_and_again(autojump_clock: MockClock) -> None:
    async with stores(15) as (cluster, nodes):
        passed: list[int] = []

        async def party(node_id: int) -> None:
            barrier = kraft.Barrier(nodes[node_id], "start", 3)
            for turn in range(3):
                await trio.sleep(node_id)
                assert passed.count(turn) == 0 or passed.count(turn - 1) == 3
                await barrier.wait()
                passed.append(turn)

        async with trio.open_nursery() as nursery:
            for node_id in cluster.ids:
                nursery.start_soon(party, node_id)
        assert passed == [0] * 3 + [1] * 3 + [2] * 3
        with trio.move_on_after(5) as waited:
            await kraft.Barrier(nodes[1], "start", 3).wait()
        assert waited.cancelled_caught
        async with trio.open_nursery() as nursery:
            # The one that was cancelled is not counted.
            nursery.start_soon(kraft.Barrier(nodes[1], "start", 3).wait)
            nursery.start_soon(kraft.Barrier(nodes[2], "start", 3).wait)
            await trio.sleep(30)
            assert len(nursery.child_tasks) == 2
            nursery.start_soon(kraft.Barrier(nodes[3], "start", 3).wait)


async def test_a_counter_counts_each_addition(autojump_clock: MockClock) -> None:
    async with stores(16) as (cluster, nodes):
        seen: list[int] = []

        async def add(node_id: int) -> None:
            counter = kraft.Counter(nodes[node_id], "visits")
            seen.extend([await counter.add(2) for _ in range(10)])

        async with trio.open_nursery() as nursery:
            for node_id in cluster.ids:
                nursery.start_soon(add, node_id)
        assert sorted(seen) == list(range(2, 61, 2))
        assert await kraft.Counter(nodes[1], "visits").value() == 60
        assert await kraft.Counter(nodes[1], "other").value() == 0


async def test_each_value_of_a_queue_is_taken_once(autojump_clock: MockClock) -> None:
    async with stores(17) as (cluster, nodes):
        taken: list[bytes] = []
        of_first: list[bytes] = []

        async def take(node_id: int) -> None:
            queue = kraft.Queue(nodes[node_id], "mail")
            for _ in range(10):
                taken.append(await queue.get())
                if node_id == 1:
                    of_first.append(taken[-1])

        async with trio.open_nursery() as nursery:
            for node_id in cluster.ids:
                nursery.start_soon(take, node_id)
            for number in range(30):
                await kraft.Queue(nodes[1 + number % 3], "mail").put(b"%02d" % number)
        assert sorted(taken) == [b"%02d" % number for number in range(30)]
        assert of_first == sorted(of_first)
        assert (await nodes[1].scan()).entries == ()


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
