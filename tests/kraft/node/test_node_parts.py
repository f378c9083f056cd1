"""The small parts of the Trio shell: clock, inbox, flush thread, log lines."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from random import Random
from time import perf_counter

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kraft.node.background import Flusher
from kraft.node.clock import NodeClock
from kraft.node.inbox import Inbox
from kraft.node.logging import NodeLog
from kraft.node.run import _closing
from kraft.process.hosting import host_raw_log
from kraft.process.opening import open_process
from kraft.process.parts import Input
from kraft.quorum.effects import HighWatermarkMoved, LeaderChanged, PeerFault, StateChanged
from kraft.quorum.values import LeaderAndEpoch
from kraft.replica.interface.events import FlushDone, StartFlush
from support.kraft.replica_net import START_MS, formatted_disk, options, voter_set


async def test_a_sleep_does_not_end_before_its_deadline(autojump_clock: MockClock) -> None:
    """Otherwise the owner would spin at the same instant of virtual time for ever."""
    await trio.sleep(0.123456789)
    clock = NodeClock(1_700_000_000_000)
    for _ in range(1000):
        deadline_ms = clock.now_ms() + 7
        await trio.sleep_until(clock.trio_time(deadline_ms))
        assert clock.now_ms() == deadline_ms


async def test_inbox_keeps_order_and_wakes_its_reader() -> None:
    inbox: Inbox[int] = Inbox()
    seen: list[int] = []

    async def reader() -> None:
        while len(seen) < 5:
            await inbox.wait()
            while inbox.events:
                seen.append(inbox.events.popleft())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader)
        await wait_all_tasks_blocked()
        inbox.put(1)
        inbox.put(2)
        await wait_all_tasks_blocked()
        assert seen == [1, 2]
        for number in (3, 4, 5):
            inbox.put(number)
    assert seen == [1, 2, 3, 4, 5]


async def test_inbox_survives_a_reader_that_is_cancelled() -> None:
    """An event and a deadline in the same instant must not schedule the reader twice."""
    inbox: Inbox[int] = Inbox()
    scope = trio.CancelScope()

    async def reader() -> None:
        with scope:
            await inbox.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader)
        await wait_all_tasks_blocked()
        scope.cancel()
        inbox.put(1)
    await inbox.wait()
    assert list(inbox.events) == [1]


async def test_an_event_is_processed_in_place_while_the_reader_waits() -> None:
    inbox: Inbox[int] = Inbox()
    in_place: list[int] = []
    inbox.in_place = lambda: in_place.append(inbox.events.popleft())
    inbox.events.append(1)
    assert not inbox.batch_delivered()
    assert in_place == [], "no reader waits yet: the reader begins with what there is"
    async with trio.open_nursery() as nursery:
        inbox.events.clear()
        nursery.start_soon(inbox.wait)
        await wait_all_tasks_blocked()
        inbox.batch_delivered()
        assert in_place == [], "nothing was delivered"
        inbox.events.append(2)
        assert inbox.batch_delivered()
        assert in_place == [2]
        inbox.put(3)
        assert not inbox.batch_delivered()
        assert in_place == [2], "the reader is awake already"


class _Handle:
    """A flush that notes its thread, waits for leave, and may fail."""

    def __init__(self, failure: OSError | None = None) -> None:
        self.failure = failure
        self.may_end = threading.Event()
        self.ran_in: threading.Thread | None = None

    def run(self) -> None:
        self.ran_in = threading.current_thread()
        self.may_end.wait(10)
        if self.failure is not None:
            raise self.failure


def _flusher(now: Callable[[], float] = perf_counter) -> tuple[Inbox[Input], Flusher]:
    inbox: Inbox[Input] = Inbox()
    wake = partial(trio.lowlevel.current_trio_token().run_sync_soon, inbox.wake)
    return inbox, Flusher(inbox.events, wake, now=now)


async def test_flush_thread_leaves_the_trio_thread_free() -> None:
    inbox, flusher = _flusher()
    handle = _Handle()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flusher.run)
        flusher.start(StartFlush(7, handle))
        flusher.begin(is_busy=True)
        await trio.lowlevel.checkpoint()
        assert not inbox.events
        handle.may_end.set()
        await inbox.wait()
        assert list(inbox.events) == [FlushDone(7)]
        assert handle.ran_in is not threading.main_thread()
        nursery.cancel_scope.cancel()
    assert handle.ran_in is not None
    assert not handle.ran_in.is_alive()


async def test_failed_flush_stops_the_node_and_reports_nothing_as_flushed() -> None:
    inbox, flusher = _flusher()
    handle = _Handle(OSError(5, "Input/output error", "00000000000000000000.log"))
    handle.may_end.set()
    flusher.start(StartFlush(1, handle))
    flusher.begin(is_busy=True)
    with pytest.raises(OSError, match=r"00000000000000000000\.log"):
        await flusher.run()
    assert not inbox.events


async def test_a_failed_flush_during_shutdown_is_raised() -> None:
    """The cancellation is delivered first: the thread is joined then, and what it met must not be forgotten."""
    inbox, flusher = _flusher()
    handle = _Handle(OSError(5, "Input/output error", "00000000000000000000.log"))
    flusher.start(StartFlush(1, handle))
    flusher.begin(is_busy=True)

    async def stop() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(flusher.run)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            handle.may_end.set()

    with pytest.raises(ExceptionGroup) as stopped:
        await stop()
    assert stopped.group_contains(OSError, match=r"00000000000000000000\.log")
    assert not inbox.events


@pytest.mark.parametrize("is_group", [False, True])
def test_a_replica_that_failed_is_not_flushed_again(is_group: bool) -> None:
    """A failure may come as it is, or in the group of a nursery; without one the replica is flushed and closed."""
    failure = OSError(5, "Input/output error")
    disk = formatted_disk(1)
    replica, _ = open_process(
        options=options(1, voter_set(3)), disk=disk, rng=Random(1), application=host_raw_log, now_ms=START_MS
    )
    operations: list[str] = []
    disk.on_operation = lambda operation, path: operations.append(operation)
    with pytest.raises(OSError if not is_group else ExceptionGroup), _closing(replica, NodeLog(1, lambda: 0)):
        raise ExceptionGroup("nursery", [failure]) if is_group else failure
    assert operations == []
    again, _ = open_process(
        options=options(1, voter_set(3)), disk=disk, rng=Random(1), application=host_raw_log, now_ms=START_MS
    )
    operations.clear()
    with pytest.raises(KeyboardInterrupt), _closing(again, NodeLog(1, lambda: 0)):
        raise KeyboardInterrupt
    assert "fsync" in operations


async def test_flushes_run_inline_only_on_a_fast_disk_without_waiting_events() -> None:
    clock_s = 0.0
    inbox, flusher = _flusher(lambda: clock_s)
    handles: list[_Handle] = []

    class Timed(_Handle):
        """Takes its time by the clock of this test."""

        def __init__(self, takes_s: float) -> None:
            super().__init__()
            self.takes_s = takes_s
            self.may_end.set()

        def run(self) -> None:
            nonlocal clock_s
            super().run()
            clock_s += self.takes_s

    async def flush(*, is_busy: bool, is_slow: bool = False) -> bool:
        """Whether it ran in place."""
        handle = Timed(0.02 if is_slow else 0.001)
        handles.append(handle)
        flusher.start(StartFlush(len(handles), handle))
        in_place = flusher.begin(is_busy=is_busy)
        while not inbox.events:
            await inbox.wait()
        assert inbox.events.popleft() == FlushDone(len(handles))
        assert not inbox.events
        assert in_place == (handle.ran_in is threading.main_thread())
        return in_place

    async with trio.open_nursery() as nursery:
        nursery.start_soon(flusher.run)
        assert not await flush(is_busy=False), "nothing is known of the disk yet"
        assert await flush(is_busy=False)
        assert not await flush(is_busy=True)
        assert await flush(is_busy=False, is_slow=True)
        assert not await flush(is_busy=False), "the disk was slow the last time"
        nursery.cancel_scope.cancel()


def test_each_transition_logs_one_line_with_fields_for_json(caplog: pytest.LogCaptureFixture) -> None:
    log = NodeLog(2, lambda: 0)
    with caplog.at_level(logging.INFO, logger="kraft.node"):
        log.trace(StateChanged("Follower", "Prospective", 4, "fetch-timeout"))
        log.trace(LeaderChanged(LeaderAndEpoch(3, 5)))
        for offset in (9, 10, 11):
            log.trace(HighWatermarkMoved(offset))
    assert [record.getMessage() for record in caplog.records] == [
        "state node=2 from=Follower to=Prospective epoch=4 cause=fetch-timeout",
        "leader node=2 leader=3 epoch=5",
        "high-watermark node=2 offset=9",
    ]
    assert vars(caplog.records[0])["facts"]["cause"] == "fetch-timeout"


def test_a_hostile_peer_cannot_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    moments = iter([*range(0, 2001, 10), *[2001] * 100])
    log = NodeLog(1, lambda: next(moments))
    with caplog.at_level(logging.WARNING, logger="kraft.node"):
        for _ in range(201):
            log.trace(PeerFault(3, "claims\nto lead"))
        for peer_id in range(4, 104):
            log.trace(PeerFault(peer_id, f"calls itself {peer_id}"))
    assert [record.getMessage().split()[0] for record in caplog.records] == ["suspicious"] * 3
    assert "\n" not in caplog.records[0].getMessage()
    assert "held_back=99" in caplog.records[1].getMessage()
