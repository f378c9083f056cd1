"""Appends by handles, and streams of them: grouped into few units, in order, bounded, with the errors of `append`."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kraft.limits import APPEND_GROUP_WEIGHT, APPENDED_BYTES_PER_TURN, MIB
from kraft.node.appends import AppendedOffsets, AppendHandle, Appends
from kraft.node.errors import AppendRejected, AppendsFull, NodeStopped, NotLeader, OutcomeUnknown
from kraft.node.inbox import Inbox
from kraft.node.node import Node
from kraft.process.hosting import host_raw_log
from kraft.process.parts import Input
from kraft.quorum.events import Tick
from kraft.quorum.values import LeaderAndEpoch
from kraft.replica.interface.events import Submit, SubmitDone
from kraft.testing import Cluster
from transport.protocol.errors import Error

LEADER = LeaderAndEpoch(2, 5)


def appends_of(limit: int = 64 * MIB, batch_bytes: int = 8 * MIB) -> tuple[Appends, Inbox[Input]]:
    inbox: Inbox[Input] = Inbox()
    return Appends(inbox, limit=limit, batch_bytes=batch_bytes), inbox


def take(inbox: Inbox[Input]) -> Submit:
    """The next event, as the owner takes it."""
    submit = inbox.events.popleft()
    assert isinstance(submit, Submit), submit
    return submit


def succeed(appends: Appends, submit: Submit, first: int = 0) -> None:
    last = first + len(submit.values) - 1
    appends.finish(SubmitDone(submit_id=submit.submit_id, base_offset=first, last_offset=last, leader=LEADER))


def test_appends_before_a_turn_are_one_unit_and_each_has_its_offset() -> None:
    appends, inbox = appends_of()
    handles = [appends.append_soon([b"a"]), appends.append_soon((b"b", b"c")), appends.append_soon([b"d"])]
    submit = take(inbox)
    assert (submit.values, list(inbox.events)) == ([b"a", b"b", b"c", b"d"], [])
    later = appends.append_soon([b"e"])
    assert take(inbox).values == [b"e"], "what the owner has taken grows no more"
    assert appends.outstanding == 4
    with pytest.raises(trio.WouldBlock):
        _ = handles[0].offset
    succeed(appends, submit, 10)
    assert [handle.offset for handle in handles] == [10, 11, 13]
    assert (later.is_done, appends.outstanding) == (False, 1)


def test_a_group_ends_where_another_event_follows_or_its_weight_does() -> None:
    appends, inbox = appends_of()
    appends.append_soon([b"a"])
    inbox.put(Tick())
    appends.append_soon([b"b"])
    for _ in range(2000):
        appends.append_soon([b"c"])
    appends.append_soon([bytes(5 * MIB)])
    appends.append_soon([b"d"])
    assert type(inbox.events[1]) is Tick
    counts = [len(one.values) for one in inbox.events if isinstance(one, Submit)]
    assert counts[0] == 1
    assert counts[-2:] == [1, 1]
    assert max(counts) * 1024 <= APPEND_GROUP_WEIGHT
    assert sum(counts) == 2004


def test_a_group_fits_into_a_small_batch_so_that_one_too_large_append_fails_alone() -> None:
    appends, inbox = appends_of(batch_bytes=3000)
    for size in (1, 1, 1, 4000, 1):
        appends.append_soon([bytes(size)])
    assert [len(take(inbox).values) for _ in range(len(inbox.events))] == [2, 1, 1, 1]


@pytest.mark.parametrize(
    ("done", "error"),
    [
        (SubmitDone(submit_id=1, error=Error.NOT_LEADER_OR_FOLLOWER, leader=LEADER), NotLeader),
        (SubmitDone(submit_id=1, error=Error.NOT_CONTROLLER, is_uncertain=True, leader=LEADER), OutcomeUnknown),
        (SubmitDone(submit_id=1, error=Error.RECORD_LIST_TOO_LARGE, leader=LEADER), AppendRejected),
    ],
)
async def test_a_failed_group_fails_each_of_its_handles(done: SubmitDone, error: type[Exception]) -> None:
    appends, _ = appends_of()
    handles = [appends.append_soon([b"a"]) for _ in range(2)]
    appends.finish(done)
    for handle in handles:
        with pytest.raises(error) as first:
            await handle
        with pytest.raises(error) as second:
            await handle
        assert first.value is not second.value, "an error that is raised twice would grow"


async def test_several_tasks_await_one_handle_and_one_that_gives_up_takes_nothing_back() -> None:
    appends, inbox = appends_of()
    handle = appends.append_soon([b"a"])
    seen: list[int] = []

    async def wait() -> None:
        seen.append(await handle)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        with trio.move_on_after(0) as scope:
            await handle
        assert scope.cancelled_caught
        told: list[AppendHandle] = []
        handle.then = told.append
        succeed(appends, take(inbox), 7)
        assert told == [handle]
    assert seen == [7, 7]
    assert await handle == 7


def test_what_is_empty_or_too_much_or_too_late_is_refused_at_once() -> None:
    appends, inbox = appends_of(limit=3000)
    with pytest.raises(AppendRejected):
        appends.append_soon([])
    handles = [appends.append_soon([b"a"]) for _ in range(3)]
    with pytest.raises(AppendsFull):
        appends.append_soon([b"b"])
    succeed(appends, take(inbox))
    last = appends.append_soon([b"b"])
    appends.stop()
    assert [handle.offset for handle in handles] == [0, 1, 2]
    with pytest.raises(NodeStopped):
        _ = last.offset
    with pytest.raises(NodeStopped):
        appends.append_soon([b"c"])
    assert appends.outstanding == 0


@pytest.mark.parametrize("values", [["text"], [b"a", "text"], b"a", "text", [None]])
def test_what_is_no_bytes_fails_its_caller_alone(values: Any) -> None:
    """It would end the node, and with it all appends of the same unit."""
    appends, inbox = appends_of()
    handle = appends.append_soon([b"good"])
    with pytest.raises(TypeError):
        appends.append_soon(values)
    submit = take(inbox)
    assert submit.values == [b"good"]
    succeed(appends, submit, 3)
    assert (handle.offset, appends.outstanding, appends.room.weight) == (3, 0, 0)


async def test_a_stream_has_so_many_outstanding_and_yields_each_offset_in_order() -> None:
    appends, inbox = appends_of()
    taken: list[int] = []

    def source() -> Iterator[list[bytes]]:
        for number in range(10):
            taken.append(number)
            yield [b"%d" % number]

    offsets = AppendedOffsets(appends.append_soon, appends.room.wait, source(), 4)
    seen: list[int] = []
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            while (offset := await anext(offsets, None)) is not None:
                seen.append(offset)

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        assert (taken, seen) == ([0, 1, 2, 3], [])
        while inbox.events:
            succeed(appends, take(inbox), len(seen))
            await trio.testing.wait_all_tasks_blocked()
            assert len(taken) - len(seen) <= 4
    assert seen == list(range(10))


async def test_a_stream_waits_for_memory_that_others_take() -> None:
    appends, inbox = appends_of(limit=1500)
    appends.append_soon([bytes(2000)])
    offsets = AppendedOffsets(appends.append_soon, appends.room.wait, [[b"a"], [b"b"]], 100)
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            assert [offset async for offset in offsets] == [1, 2]

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        succeed(appends, take(inbox), 0)
        await trio.testing.wait_all_tasks_blocked()
        succeed(appends, take(inbox), 1)


async def test_a_stream_waits_for_memory_that_was_taken_while_its_source_waited() -> None:
    appends, inbox = appends_of(limit=1500)
    go = trio.Event()

    async def source() -> AsyncIterator[list[bytes]]:
        await go.wait()
        yield [b"a"]

    offsets = AppendedOffsets(appends.append_soon, appends.room.wait, source(), 100)
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            assert [offset async for offset in offsets] == [1]

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        appends.append_soon([bytes(2000)])
        go.set()
        await trio.testing.wait_all_tasks_blocked()
        succeed(appends, take(inbox), 0)
        await trio.testing.wait_all_tasks_blocked()
        succeed(appends, take(inbox), 1)


@pytest.mark.parametrize("last", [[], [[]]])
async def test_a_stream_that_appends_nothing_keeps_no_room_from_others(last: list[list[bytes]]) -> None:
    appends, inbox = appends_of(limit=1500)
    appends.append_soon([bytes(2000)])
    seen: list[int] = []
    async with trio.open_nursery() as nursery:

        async def read(units: list[list[bytes]]) -> None:
            try:
                seen.extend(
                    [offset async for offset in AppendedOffsets(appends.append_soon, appends.room.wait, units, 100)]
                )
            except AppendRejected:
                assert units == [[]]

        nursery.start_soon(read, last)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(read, [[b"a"]])
        await trio.testing.wait_all_tasks_blocked()
        succeed(appends, take(inbox), 0)
        await trio.testing.wait_all_tasks_blocked()
        assert inbox.events, "there is room, and nobody else will say so"
        succeed(appends, take(inbox), 1)
    assert seen == [1]


async def test_what_is_committed_does_not_wait_for_a_slow_source() -> None:
    appends, inbox = appends_of()

    async def source() -> AsyncIterator[list[bytes]]:
        yield [b"a"]
        yield [b"b"]
        succeed(appends, take(inbox), 5)
        yield [b"c"]
        await trio.sleep_forever()

    offsets = AppendedOffsets(appends.append_soon, appends.room.wait, source(), 100)
    assert await anext(offsets) == 5
    assert await anext(offsets) == 6


async def test_a_failed_stream_names_the_error_of_its_first_failure() -> None:
    appends, inbox = appends_of()
    offsets = AppendedOffsets(appends.append_soon, appends.room.wait, [[b"a"], []], 1)
    with trio.move_on_after(0):
        await anext(offsets)
    succeed(appends, take(inbox), 3)
    assert await anext(offsets) == 3, "what gave up may go on"
    with pytest.raises(AppendRejected):
        await anext(offsets)


async def raw_log(cluster: Cluster) -> tuple[Node, Node]:
    """The leader and a follower."""
    leader = await cluster.leader()
    return cluster.node(leader), cluster.node(cluster.others(leader)[0])


async def test_nodes_commit_what_was_appended_soon_in_its_order(autojump_clock: MockClock) -> None:
    with trio.fail_after(600):
        async with Cluster(controllers=3, seed=1, application=host_raw_log) as cluster:
            leader, follower = await raw_log(cluster)
            handles = [leader.append_soon([b"%d" % number]) for number in range(3000)]
            offsets = [await handle for handle in handles]
            assert offsets == list(range(offsets[0], offsets[0] + 3000))
            streamed = [offset async for offset in leader.append_many([[b"x", b"y"]] * 50, outstanding=7)]
            assert streamed == list(range(offsets[-1] + 1, offsets[-1] + 101, 2))
            found: list[bytes] = []
            async for batch in follower.committed():
                found += batch.values
                if len(found) == 3100:
                    break
            assert found == [b"%d" % number for number in range(3000)] + [b"x", b"y"] * 50
            with pytest.raises(NotLeader):
                await follower.append_soon([b"z"])
            await cluster.stop(leader.status().node_id)
            with pytest.raises(NodeStopped):
                leader.append_soon([b"z"])


async def test_no_turn_writes_more_than_its_bound_however_many_appends_wait(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of 20,000 handles, of which each turn takes a bounded part, whatever the clock says."""
    with trio.fail_after(600):
        async with Cluster(controllers=1, seed=1, application=host_raw_log) as cluster:
            leader = cluster.node(await cluster.leader())
            flushed: list[int] = []
            flush = leader._process.step

            def step(event: Input, now_ms: int) -> object:
                before = leader._replica.core.log.end_offset
                outputs = flush(event, now_ms)
                flushed.append(leader._replica.core.log.end_offset - before)
                return outputs

            monkeypatch.setattr(leader._process, "step", step)
            handles = list(map(leader.append_soon, itertools.repeat([bytes(100)], 20_000)))
            for handle in handles:
                await handle
            most = (APPENDED_BYTES_PER_TURN + APPEND_GROUP_WEIGHT) // (100 + 21)
            assert sum(flushed) >= 20_000
            assert max(flushed) <= most < 20_000, "the turns would grow with what waits"


async def test_a_leader_that_is_cut_off_does_not_know_the_outcome(autojump_clock: MockClock) -> None:
    with trio.fail_after(600):
        async with Cluster(controllers=3, seed=3, application=host_raw_log) as cluster:
            leader, _ = await raw_log(cluster)
            cluster.network.partition({leader.status().node_id}, cluster.others(leader.status().node_id))
            handles = list(map(partial(leader.append_soon), [[b"a"], [b"b"]]))
            for handle in handles:
                with pytest.raises(OutcomeUnknown):
                    await handle
            with pytest.raises(NotLeader):
                await leader.append_soon([b"c"])
