"""Nodes for Trio, asyncio and threads: one suite, run three times, over real files and TCP."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kraft
import kraft.asyncio
import kraft.sync
from kraft.node.room import Room
from metadata_log.types import OffsetAndEpoch
from store_worlds import WORLDS, Awaited, Test, World
from support.kraft.sum_machine import Add, Sum
from support.loopback import free_ports

FAST = {
    "controller.quorum.election.timeout.ms": "150",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.fetch.timeout.ms": "500",
}
FASTER = {**FAST, "controller.quorum.fetch.timeout.ms": "300"}


@pytest.fixture(params=WORLDS, ids=lambda world: world.__name__)
def world(request: pytest.FixtureRequest) -> World:
    made: World = request.param()
    return made


async def now(value: Any) -> Any:
    """The value of a function that is not awaited with Trio."""
    return await value if inspect.isawaitable(value) else value


async def a_log(world: World, directory: Path) -> None:
    node = world.it
    assert (await node.wait_for_leader()).leader_id == 1 == (await anext(node.leaders())).leader_id
    assert (node.is_active, node.has_quorum, (await now(node.status())).state) == (True, True, "Leader")
    committed = node.committed()
    offset = await node.append([b"one", b"two"])
    assert (await anext(committed)).values == (b"one", b"two")
    assert (await anext(node.committed(offset))).base_offset == offset
    with pytest.raises(kraft.AppendRejected):
        await node.append([])

    async def wait(node: Any) -> None:
        await anext(node.committed(offset + 2))

    assert await world.gives_up(wait, 0.05)


async def snapshots_and_backups(world: World, directory: Path) -> None:
    node = world.it
    assert await node.load_snapshot() is None
    first = await node.append([b"one", b"two"])
    assert await node.snapshot(b"1+2", offset=first + 2) == OffsetAndEpoch(epoch=1, offset=first + 2)
    loaded = await node.load_snapshot()
    assert (loaded.offset, loaded.state) == (first + 2, b"1+2")
    for wrong in ({}, {"state": b""}, {"offset": first}):
        with pytest.raises(TypeError, match="gives the state"):
            await node.snapshot(**wrong)
    path = await node.backup(str(directory))
    kraft.restore(path, f"{directory}/new", node_id=7)
    async with world.api.create(f"{directory}/new", settings=FAST) as new:
        assert (await new.load_snapshot()).state == b"1+2"
        assert (await anext(new.committed(first))).values == (b"one", b"two")


async def membership(world: World, directory: Path) -> None:
    node = world.it
    address = str(node.endpoints[0])
    memberships = node.memberships()
    assert [voter.id for voter in await anext(memberships)] == [1]
    async with world.api.join(address, f"{directory}/2", node_id=2, settings=FAST) as two:
        assert [voter.id for voter in await anext(memberships)] == [1, 2]
        assert [voter.id for voter in (await two.describe_quorum()).voters] == [1, 2]
        with pytest.raises(kraft.AdminError, match="votes already"):
            await two.add_voter()
        with pytest.raises(kraft.NotLeader):
            await two.transfer_leadership()
        assert (await node.transfer_leadership(2)).leader_id == 2
        await two.remove_voter(1)
        assert [voter.id for voter in two.voters] == [2]


def the_room(node: Any) -> Room:
    found: Room = getattr(node, "trio", node).appends.room
    return found


async def handles(world: World, directory: Path) -> None:
    node = world.it
    await node.wait_for_leader()
    values = [b"0"]
    made = [node.append_soon(values)]
    # What was appended does not change with the list of the caller.
    values.clear()
    made += [node.append_soon([b"%d" % number]) for number in range(1, 300)]
    last = await node.append([b"last"])
    offsets = [await handle for handle in made]
    assert offsets == list(range(offsets[0], offsets[0] + 300))
    assert last == offsets[-1] + 1, "what is called later is appended later"
    assert made[0].is_done
    assert await made[0] == offsets[0]
    with pytest.raises(kraft.AppendRejected):
        node.append_soon([])


async def streams(world: World, directory: Path) -> None:
    node = world.it
    await node.wait_for_leader()
    taken: list[int] = []

    def source() -> Iterator[list[bytes]]:
        for number in range(100):
            taken.append(number)
            yield [b"%d" % number, b"x"]

    offsets: list[int] = []
    async for offset in node.append_many(source(), outstanding=7):
        offsets.append(offset)
        assert len(taken) - len(offsets) < 7
    assert offsets == list(range(offsets[0], offsets[0] + 200, 2))
    with pytest.raises(kraft.AppendRejected):
        await anext(node.append_many([[]]))


async def a_small_room(world: World, directory: Path) -> None:
    node = world.it
    await node.wait_for_leader()
    the_room(node).limit = 3000

    def fill() -> None:
        # With threads the node may be as fast as this one, for a while.
        for _ in range(1000):
            node.append_soon([bytes(3000)])

    with pytest.raises(kraft.AppendsFull):
        fill()
    seen = [offset async for offset in node.append_many([[b"x"]] * 20)]
    assert seen == list(range(seen[0], seen[0] + 20))


async def lost_leadership(world: World, directory: Path) -> None:
    node = world.it
    async with world.api.join(str(node.endpoints[0]), f"{directory}/2", node_id=2, settings=FASTER):
        assert node.is_active
    handle = node.append_soon([b"x"])

    async def wait(_: Any) -> None:
        await handle.within(0.02) if isinstance(handle, Awaited) else await handle

    assert await world.gives_up(wait, 0.02)
    assert not handle.is_done
    for _ in range(2):
        with pytest.raises(kraft.OutcomeUnknown):
            await handle
    with pytest.raises(kraft.NotLeader):
        await node.append_soon([b"y"])
    with pytest.raises(kraft.NotLeader):
        await anext(node.append_many([[b"z"]]))


async def the_end(world: World, directory: Path) -> None:
    async with world.api.create(f"{directory}/2", node_id=2, settings=FAST) as node:
        await node.wait_for_leader()
        first = node.append_soon([b"x"])
    # It may or may not be committed in time, and whoever waits is told.
    with suppress(kraft.NodeStopped):
        assert await first > 0
    assert first.is_done
    for _ in range(2):
        with pytest.raises(kraft.NodeStopped if world.name == "trio" else kraft.LoopEnded):
            node.append_soon([b"y"])


@pytest.mark.parametrize(
    "test",
    [a_log, snapshots_and_backups, membership, handles, streams, a_small_room, lost_leadership, the_end],
    ids=lambda test: test.__name__,
)
def test_a_raw_log_does_the_same_in_each_world(
    world: World, test: Callable[[World, Path], Any], tmp_path: Path
) -> None:
    world.open(
        lambda api: api.create(f"{tmp_path}/1", node_id=1, settings=FASTER if test is lost_leadership else FAST),
        lambda world: test(world, tmp_path),
    )


def test_a_turn_of_an_event_loop_crosses_once_each_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with kraft.asyncio.create(f"{tmp_path}/1", settings=FAST) as node:
            await node.wait_for_leader()
            woken: list[str] = []
            has_crossed = asyncio.Event()
            loop = asyncio.get_running_loop()
            wake, call = node.thread.wake, loop.call_soon_threadsafe

            def woken_there() -> None:
                woken.append("there")
                has_crossed.set()

            def woken_back(*one: Any) -> object:
                woken.append("back")
                return call(*one)

            monkeypatch.setattr(node.thread, "wake", woken_there)
            monkeypatch.setattr(loop, "call_soon_threadsafe", woken_back)
            made = asyncio.gather(*(node.append_soon([b"x"]) for _ in range(200)))
            await has_crossed.wait()
            has_turned = asyncio.Event()
            loop.call_soon(has_turned.set)
            await has_turned.wait()  # Now each waits: one that is done before needs no way back.
            wake()
            # The loop has no turn until all are done: a turn in between would be crossed to for itself.
            node.thread.start(lambda: node.trio.append([b"last"])).result(10)
            offsets = await made
            assert offsets == list(range(offsets[0], offsets[0] + 200))
            assert woken == ["there", "back"]
            batch = await anext(node.committed(offsets[0]))
            assert batch.values[:200] == (b"x",) * 200

    asyncio.run(main())


def test_an_asynchronous_source_streams_with_asyncio(tmp_path: Path) -> None:
    async def main() -> None:
        async with kraft.asyncio.create(f"{tmp_path}/1", settings=FAST) as node:
            await node.wait_for_leader()

            async def source() -> AsyncIterator[list[bytes]]:
                for number in range(20):
                    await asyncio.to_thread(bytes)
                    yield [b"%d" % number]

            offsets = [offset async for offset in node.append_many(source(), outstanding=3)]
            assert offsets == list(range(offsets[0], offsets[0] + 20))

    asyncio.run(main())


def test_several_loops_and_threads_append_to_one_node_and_wait_for_one_handle(tmp_path: Path) -> None:
    async def main() -> None:
        async with kraft.asyncio.create(f"{tmp_path}/1", settings=FAST) as node:
            await node.wait_for_leader()
            shared = node.append_soon([b"shared"])
            same = kraft.sync.Node(node.thread, node.trio)
            early = same.append_soon([b"early"])

            async def elsewhere() -> list[int]:
                return [await shared, *[await node.append_soon([b"%d" % number]) for number in range(50)]]

            def beside() -> list[int]:
                return [early.result(), *[same.append_soon([b"%d" % number]).result() for number in range(50)]]

            found = await asyncio.gather(
                elsewhere(),
                *[asyncio.to_thread(asyncio.run, elsewhere()) for _ in range(2)],
                *[asyncio.to_thread(beside) for _ in range(2)],
            )
            assert {one[0] for one in found} == {await shared, early.result(0)}
            offsets = [offset for one in found for offset in one[1:]]
            assert len(set(offsets)) == 250

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_can_neither_append_nor_wait(tmp_path: Path) -> None:
    with kraft.sync.create(f"{tmp_path}/1", settings=FAST) as node:
        node.wait_for_leader()
        pending = kraft.sync.AppendHandle(1, thread=node.thread)
        child = os.fork()
        if not child:
            refused = 0
            for use in (lambda: node.append_soon([b"x"]), pending.result):
                try:
                    use()
                except kraft.Forked:
                    refused += 1
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        assert node.append_soon([b"y"]).result() > 0


async def commands(world: World) -> None:
    node = world.it
    watch = node.watch()
    assert await node.submit(Add(3)) == 3
    assert await node.read() == 3 == await node.read(lambda machine: machine.total, linearizable=False)
    with pytest.raises(kraft.CommandRefused, match="only more"):
        await node.submit(Add(-1))
    change = await anext(watch)
    assert (change.command, change.result) == (Add(3), 3)
    session = await node.open_session("me")
    for _ in range(2):
        assert await now(session.submit(Add(2), 1)) == 5
    assert (session.client, session.last_sequence, (await node.open_session("me")).id) == ("me", 1, session.id)


async def an_observer(world: World) -> None:
    node = world.it
    await node.submit(Add(1))
    async with world.api.observe(str(node.endpoints[0]), state_machine=Sum, settings=FAST) as other:
        assert await other.submit(Add(1)) == 2 == await node.read()
        assert not (await now(other.status())).is_voter


@pytest.mark.parametrize("test", [commands, an_observer], ids=lambda test: test.__name__)
def test_a_state_machine_does_the_same_in_each_world(world: World, test: Test, tmp_path: Path) -> None:
    world.open(lambda api: api.create(f"{tmp_path}/1", state_machine=Sum, settings=FAST), test)


def test_a_read_may_be_as_old_as_its_caller_says(world: World, tmp_path: Path) -> None:
    async def test(world: World) -> None:
        store = world.it
        assert await now(store.age()) == float("inf")
        page = await store.scan(linearizable=False)
        assert page.age == float("inf")
        await store.put("a", b"1")
        # Nothing was read linearizably so far, so that no age is young enough.
        assert (await store.get("a", max_age=1000)).value == b"1"
        young = await now(store.age())
        assert 0 <= young < 100
        page = await store.scan(max_age=1000)
        assert young <= page.age < 100
        # Old enough now: the state is read as it is, and does not become younger.
        assert (await store.get("a", max_age=1000)).value == b"1"
        assert await now(store.age()) >= page.age
        assert (await store.scan(max_age=0)).age < 100
        assert await now(store.node.age()) < 100

    world.open(lambda api: api.create_store(f"{tmp_path}/1", settings=FAST), test)


def test_stores_join_in_each_world(world: World, tmp_path: Path) -> None:
    async def test(world: World) -> None:
        address = str(world.it.node.endpoints[0])
        async with (
            world.api.join_store(address, f"{tmp_path}/2", settings=FAST) as two,
            world.api.connect_store(address, settings=FAST) as client,
        ):
            version = await client.put("a", b"1")
            assert (await two.get("a")).version == version == (await world.it.get("a")).version
            assert len(two.node.voters) == 2

    world.open(lambda api: api.create_store(f"{tmp_path}/1", settings=FAST), test)


def test_a_node_of_a_configuration_opens_in_each_world(world: World, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    config = kraft.Config.parse(f"""
process.roles=controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{port}
controller.listener.names=CONTROLLER
listeners=CONTROLLER://127.0.0.1:{port}
log.dirs={tmp_path}/log""")
    kraft.format(config, "4r7wkyKkSWiB3LPcgh31RQ")

    async def test(world: World) -> None:
        assert (await world.it.wait_for_leader()).leader_id == 1

    world.open(lambda api: api.open_node(config), test)


def test_a_node_that_has_ended_says_so_in_threads(tmp_path: Path) -> None:
    with kraft.sync.create(f"{tmp_path}/1", settings=FAST) as node:
        leaders = node.leaders()
        assert next(leaders).leader_id == node.status().node_id
        with pytest.raises(TimeoutError):
            node.within(0.02).add_voter(9, "127.0.0.1:1")
    with pytest.raises(kraft.LoopEnded, match="the thread kraft-node has ended"):
        node.append([b"x"])
    with pytest.raises(kraft.LoopEnded):
        node.status()
    assert list(leaders) == []
