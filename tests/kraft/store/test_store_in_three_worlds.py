"""The store for Trio, asyncio and threads: one suite, run three times, over real files and TCP."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

import kraft
import kraft.asyncio
import kraft.sync
from kraft.admin.errors import AdminError
from kraft.config import Config
from kraft.store import Event, Lease, Page, Put
from metadata_log.disk import OsDisk
from metadata_log.errors import MetadataLogError
from metadata_log.log.log_dir import format_directory
from store_worlds import WORLDS, AsyncioWorld, Test, ThreadWorld, World
from support.eventually import eventually
from support.loopback import free_ports


def config_of(directory: Path) -> Config:
    """A quorum of one node, with a formatted directory."""
    (port,) = free_ports(1)
    log_dir = str(directory / "node")
    format_directory(OsDisk(), log_dir, node_id=1, cluster_id="4L6g3nShT-eMCtK--X86sw", rng=Random(1), now_ms=1)
    return Config.parse(
        f"process.roles=controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{port}\n"
        f"controller.listener.names=CONTROLLER\nlisteners=CONTROLLER://127.0.0.1:{port}\nlog.dirs={log_dir}\n"
        "controller.quorum.election.timeout.ms=50\ncontroller.quorum.append.linger.ms=0\n"
    )


@pytest.fixture(params=WORLDS, ids=lambda world: world.__name__)
def world(request: pytest.FixtureRequest) -> World:
    made: World = request.param()
    return made


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return config_of(tmp_path)


async def keys_and_values(world: World) -> None:
    store = world.store
    assert await store.get("a") is None
    version = await store.put("a", b"1", if_absent=True)
    entry = await store.get("a", linearizable=False)
    assert (entry.key, entry.value, entry.version) == ("a", b"1", version)
    with pytest.raises(kraft.Conflict) as refused:
        await store.put("a", b"2", if_value=b"2")
    assert refused.value.entry == entry
    with pytest.raises(kraft.CommandRefused, match="at most 1024 bytes"):
        await store.put("k" * 2000, b"")
    assert await store.transact(Put("b", b"2"), Put("c", b"3")) == version + 1 == store.revision
    page: Page = await store.scan(after="a", limit=1)
    assert ([one.key for one in page.entries], page.is_last, page.revision) == (["b"], False, version + 1)
    assert (await store.scan(limit=3)).is_last
    assert await store.delete("a")
    assert not await store.delete("a")
    assert await store.clear("") == 2


async def all_entries(world: World) -> None:
    """More keys than a page has."""
    store = world.store
    assert [one async for one in store.entries("none/")] == []
    wanted = [f"k/{number:04}" for number in range(1200)]
    for begin in range(0, len(wanted), 120):
        await store.transact(*(Put(key, b"") for key in wanted[begin : begin + 120]))
    await store.put("l", b"")
    assert [one.key async for one in store.entries("k/")] == wanted
    assert [one.key async for one in store.entries(linearizable=False)] == [*wanted, "l"]


async def watches(world: World) -> None:
    store = world.store
    watch = store.watch("w/")

    async def write() -> None:
        for number in range(3):
            await store.put(f"w/{number}", b"")
            await store.put(f"other/{number}", b"")

    async with world.beside(write):
        events = [await anext(watch) for _ in range(3)]
    assert [(type(event), event.key) for event in events] == [(Event, f"w/{number}") for number in range(3)]
    again = store.watch(key="w/2", after=0)
    assert (await anext(again)).key == "w/2"

    async def wait(store: Any) -> None:
        await anext(store.watch())

    assert await world.gives_up(wait, 0.05)


async def locks(world: World) -> None:
    store, api = world.store, world.api
    tokens: list[int] = []
    inside: list[str] = []

    async def work(name: str) -> None:
        for _ in range(3):
            async with api.Lock(store, "it") as held:
                assert held.is_held
                assert not inside
                inside.append(name)
                tokens.append(held.token)
                await store.get("it")
                inside.clear()
            assert not held.is_held

    async with world.beside(lambda: work("one")):
        await work("other")
    assert len(tokens) == 6
    assert tokens == sorted(set(tokens))

    async def wait(store: Any) -> None:
        async with api.Lock(store, "it"):
            raise AssertionError("two hold it")

    async with api.Lock(store, "it"):
        assert await world.gives_up(wait, 0.05)
    # The one that gave up stands in no line any more.
    async with api.Lock(store, "it"), api.Semaphore(store, "it", 2), api.Semaphore(store, "it", 2):
        pass
    lock = api.Lock(store, "it")
    async with lock:
        with pytest.raises(RuntimeError, match="each holder makes its own"):
            await lock.__aenter__()
    with pytest.raises(ZeroDivisionError):
        async with lock:
            _ = 1 / 0


async def wrong_arguments(world: World) -> None:
    """A program without a type checker hears what is wrong, in its caller, and nothing is written."""
    store, api = world.store, world.api
    text = "a value is bytes, and not 'x': encode it"
    for wrong, said in (
        (partial(store.get, b"a"), "a key is text, and not b'a'"),
        (partial(store.put, b"a", b"x"), "a key is text, and not b'a'"),
        (partial(store.put, "a", "x"), text),
        (partial(store.put, "a", None), "a value is bytes, and not None"),
        (partial(store.put, "a", b"x", if_value="x"), text),
        (partial(store.put, "a", b"x", lease=7), "lease= takes a Lease, as `Store.lease` and `Store.grant` make it"),
        (partial(store.delete, 7), "a key is text, and not 7"),
        (partial(store.transact, {"a": b"x"}), "a transaction takes Put, Delete, Clear and Append of kraft.store"),
        (partial(store.transact, Put("a", b""), conditions=(7,)), "a condition is an IfVersion or IfValue"),
        (partial(api.Queue(store, "mail").put, "x"), text),
        (partial(api.WorkQueue(store, "jobs").put, "x"), text),
    ):
        with pytest.raises(TypeError, match=said):
            await wrong()
    for ttl in (2.9, float("nan"), float("inf")):
        with pytest.raises(kraft.CommandRefused, match=f"a lease lives for 3 to 86400 seconds, not for {ttl}"):
            await store.grant(ttl)
    with pytest.raises(ValueError, match="a page has at least one key: the limit is 0"):
        await store.scan(limit=0)
    with pytest.raises(ValueError, match="at least one holder is admitted, and not 0"):
        async with api.Semaphore(store, "it", 0):
            pass
    for parties in (0, 1001):
        with pytest.raises(ValueError, match=f"1 to 1000 parties wait for each other, and not {parties}"):
            api.Barrier(store, "it", parties)
    with pytest.raises(kraft.AppendRejected, match="a node with a state machine takes none, but `submit`"):
        await store.node.append([b"x"])
    with pytest.raises(OSError, match="the folder of a backup must exist: make the directory first"):
        await store.node.backup("no-such-folder")
    with pytest.raises(kraft.NodeError, match="node 9 is no other voter; the other voters are: none"):
        await store.node.transfer_leadership(9)
    with pytest.raises(AdminError, match="the quorum is static"):
        await store.node.remove_voter(1)
    assert (await store.scan()).entries == ()


async def leases_by_hand(world: World) -> None:
    store = world.store
    lease = await store.grant(3)
    await store.put("mine", b"", lease=lease)
    await store.renew(lease)
    assert lease.is_held
    await store.revoke(Lease(lease.id, 3))
    assert await store.get("mine") is None
    with pytest.raises(kraft.LeaseLost):
        await store.renew(lease)
    assert not lease.is_held
    with pytest.raises(kraft.CommandRefused, match="a lease lives for"):
        await store.grant(1)


async def elections(world: World) -> None:
    election = world.api.Election(world.store, "boss")
    leaders = election.observe()
    assert await anext(leaders) is None
    async with election.campaign(b"me") as held:
        leader = await anext(leaders)
        assert leader == await election.leader()
        assert (leader.value, leader.token) == (b"me", held.token)
    assert await anext(leaders) is None


async def what_is_left(world: World) -> None:
    store, api = world.store, world.api
    counter, queue = api.Counter(store, "visits"), api.Queue(store, "mail")
    assert await counter.add() == 1
    assert await counter.add(4) == 5 == await counter.value()

    async def party() -> None:
        await api.Barrier(store, "start", 2).wait()
        await queue.put(b"letter")

    async with world.beside(party):
        await api.Barrier(store, "start", 2).wait()
        assert await queue.get() == b"letter"

    async def wait(store: Any) -> None:
        await api.Queue(store, "mail").get()

    assert await world.gives_up(wait, 0.05)


async def jobs(world: World) -> None:
    store, api = world.store, world.api
    queue = api.WorkQueue(store, "jobs", attempts=2)
    number = await queue.put(b"one")

    async def fail() -> None:
        async with queue.take() as job:
            assert (job.id, job.value, job.attempt, job.is_held) == (number, b"one", 1, True)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with queue.take() as job:
        assert (job.id, job.attempt) == (number, 2)
        job.again("not today")
    (letter,) = await queue.dead()
    assert (letter.id, letter.attempts, letter.why) == (number, 2, "not today")
    await queue.retry(letter)
    async with queue.take() as job:
        job.reject()
    (letter,) = await queue.dead()
    await queue.forget(letter)
    await queue.put(b"two")
    async with queue.take() as job:
        assert job.value == b"two"

    async def wait(store: Any) -> None:
        async with api.WorkQueue(store, "jobs").take():
            raise AssertionError("nobody has put a job")

    assert await world.gives_up(wait, 0.05)
    assert 0 <= store.fullness < 0.01
    assert (await store.scan("work/")).entries == ()


@pytest.mark.parametrize(
    "test",
    [keys_and_values, all_entries, watches, locks, wrong_arguments, leases_by_hand, elections, what_is_left, jobs],
    ids=lambda test: test.__name__,
)
def test_a_store_does_the_same_in_each_world(world: World, test: Test, config: Config) -> None:
    world.run(config, test)


def test_a_lost_lease_ends_the_block(world: World, config: Config) -> None:
    async def lose(world: World) -> None:
        store = world.store

        async def hold() -> None:
            async with store.lease(3) as lease:
                await store.put("mine", b"", lease=lease)
                await store.revoke(Lease(lease.id, lease.ttl))
                with pytest.raises(kraft.LeaseLost):
                    await store.put("mine", b"", lease=lease)
                # The next renewal finds that. A block in a thread cannot be cancelled, and looks.
                if world.name == "threads":
                    eventually(lambda: not lease.is_held, "the lease is lost")
                else:
                    await anext(store.watch("never"))

        with pytest.raises(kraft.LeaseLost, match="has ended"):
            await hold()
        assert await store.get("mine") is None

    world.run(config, lose)


def test_a_directory_that_is_not_formatted_is_an_error_at_the_opening(world: World, tmp_path: Path) -> None:
    config = config_of(tmp_path)
    (tmp_path / "node" / "meta.properties").unlink()

    async def never(world: World) -> None:
        raise AssertionError("it has opened")

    with pytest.raises(MetadataLogError):
        world.run(config, never)


def test_an_error_of_the_block_is_raised_and_the_store_opens_again(world: World, config: Config) -> None:
    async def fail(world: World) -> None:
        await world.store.put("a", b"1")
        raise ZeroDivisionError

    async def look(world: World) -> None:
        assert (await world.store.get("a")).value == b"1"

    with pytest.raises(ZeroDivisionError):
        world.run(config, fail)
    world.run(config, look)
    for thread in threading.enumerate():
        if thread.name == "kraft-store":
            thread.join(10)
            assert not thread.is_alive()


@pytest.mark.parametrize("other", [AsyncioWorld, ThreadWorld])
def test_a_store_that_has_ended_says_so(other: type[World], config: Config) -> None:
    world = other()
    watches: list[Any] = []

    async def take(world: World) -> None:
        watches.append(world.store.watch())

    async def use(_: World) -> None:
        with pytest.raises(kraft.LoopEnded, match=r"the thread kraft-store has ended .*: open it again"):
            await world.store.get("a")
        with pytest.raises(StopAsyncIteration):
            await anext(watches[0])

    world.run(config, take)
    if other is AsyncioWorld:
        asyncio.run(use(world))
    else:
        with pytest.raises(StopIteration):
            use(world).send(None)


def test_calls_wait_without_a_busy_loop(world: World, config: Config) -> None:
    async def wait(world: World) -> None:
        async def next_event(store: Any) -> None:
            await anext(store.watch())

        before = time.process_time()
        assert await world.gives_up(next_event, 0.5)
        assert time.process_time() - before < 0.25

    world.run(config, wait)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_is_refused_and_does_no_harm(config: Config) -> None:
    with kraft.sync.open_store(config) as store:
        store.put("a", b"1")
        lock = kraft.sync.Lock(store, "it")
        child = os.fork()
        if not child:
            node, refused = store.node, 0
            for call in (
                lambda: store.get("a"),
                lock.__enter__,
                store.watch,
                # What this process knows grows old.
                lambda: store.revision,
                lambda: node.is_active,
                lambda: node.has_quorum,
                lambda: node.voters,
            ):
                try:
                    call()
                except kraft.Forked:
                    refused += 1
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert store.put("a", b"2") > 0


def test_a_call_that_is_out_of_time_says_what_may_have_come_of_it(config: Config) -> None:
    with kraft.sync.open_store(config) as store:
        queue = kraft.sync.Queue(store.within(0.05), "mail")
        with pytest.raises(TimeoutError, match=r"not done within 0\.05 s: a change may have been made or not"):
            queue.get()


def test_another_loop_is_refused_and_does_no_harm(config: Config) -> None:
    """A program may have several loops of Trio; a call of the wrong one must not end the node."""

    async def main() -> None:
        async with kraft.open_store(config) as store:
            await store.put("a", b"1")
            watch, other = store.watch(), store.node.leaders()
            await anext(other)

            def elsewhere() -> None:
                for call in (partial(store.get, "a"), partial(store.put, "a", b""), watch.__anext__, other.__anext__):
                    with pytest.raises(RuntimeError, match="runs in another Trio loop: call it there"):
                        trio.run(call)
                with pytest.raises(RuntimeError, match="runs in another Trio loop"):
                    store.node.append_soon([b"x"])

            await trio.to_thread.run_sync(elsewhere)
            with trio.fail_after(60):
                assert (await store.put("a", b"2")) > 0

    trio.run(main)


def test_the_wrong_kind_of_program_is_told_the_right_names(config: Config) -> None:
    async def with_trio() -> None:
        async with kraft.open_store(config):
            raise AssertionError("it runs without Trio")

    async def with_asyncio() -> None:
        async with kraft.asyncio.open_store(config):
            raise AssertionError("it runs without asyncio")

    with pytest.raises(RuntimeError, match=r"in an asyncio program use the same name of kraft\.asyncio"):
        asyncio.run(with_trio())
    with pytest.raises(RuntimeError, match="in a Trio program use the same name of kraft"):
        trio.run(with_asyncio)
    assert all(thread.name != "kraft-store" for thread in threading.enumerate())


def test_an_asyncio_block_that_others_cancel_stays_cancelled(config: Config) -> None:
    async def main() -> None:
        async with kraft.asyncio.open_store(config) as store:

            async def hold() -> None:
                async with kraft.asyncio.Lock(store, "it"):
                    holds.set()
                    await asyncio.Event().wait()

            holds = asyncio.Event()
            task = asyncio.ensure_future(hold())
            await holds.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with asyncio.timeout(5), kraft.asyncio.Lock(store, "it"):
                pass

    asyncio.run(main())


def test_a_store_of_asyncio_serves_a_trio_program_in_another_thread(config: Config) -> None:
    """Whoever runs a loop of Trio may still use the functions that wait, from a worker thread."""

    async def main() -> None:
        def work() -> int:
            with kraft.sync.open_store(config) as store:
                return store.put("a", b"1")

        assert await trio.to_thread.run_sync(work) == 1

    trio.run(main)
