"""A leader with more records than it can write: the leader gathers and splits batches, refuses records that fit in
none, and bounds its memory. One caller's records never harm another caller.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from kraft.node.appends import Appends
from kraft.node.inbox import Inbox
from kraft.process.parts import Input
from kraft.quorum.accumulator import BATCH_OVERHEAD, RECORD_OVERHEAD
from kraft.quorum.values import LeaderAndEpoch, QuorumConfig
from kraft.replica.interface.events import Submit, SubmitDone
from metadata_log.records.batch import scan
from sessions_quorum import Quorum
from support.kraft.replica_net import Net
from transport.protocol.errors import Error
from transport.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from transport.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic

LIMIT = 600
MOST = LIMIT - BATCH_OVERHEAD - RECORD_OVERHEAD
"""The largest value that a batch can hold."""


def small_batches(**more: Any) -> QuorumConfig:
    return QuorumConfig(**{"append_linger_ms": 0, "max_batch_bytes": LIMIT, **more})


def batch_sizes(net: Net, node: int) -> list[int]:
    """The bytes of every batch in the log of a node."""
    log = net.processes[node].replica.log
    sizes, offset = [], log.start_offset
    while offset < log.end_offset:
        for batch in scan(log.read(offset, 1 << 20), where="log"):
            sizes.append(batch.size_bytes)
            offset = batch.next_offset
    return sizes


# Linger


# Splitting


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(1, MOST + 40), min_size=1, max_size=3), min_size=1, max_size=30))
def test_a_burst_is_split_into_batches_and_an_oversized_unit_refused(units: list[list[int]]) -> None:
    """A unit is in one batch or in none: only the caller with a unit that is too large gets an error."""
    net = Net(quorum=small_batches())
    leader = net.elect()
    end = net.processes[leader].replica.core.log.end_offset
    wanted = [tuple(number.to_bytes(2, "big") + bytes(size) for size in unit) for number, unit in enumerate(units)]
    asked = [net.submit(leader, *values) for values in wanted]
    net.settle()
    fits = [BATCH_OVERHEAD + sum(RECORD_OVERHEAD + len(value) for value in values) <= LIMIT for values in wanted]
    expected = [Error.NONE if fit else Error.RECORD_LIST_TOO_LARGE for fit in fits]
    assert [net.done[one].error for one in asked] == expected
    assert not any(net.done[one].is_uncertain for one in asked)
    for values, one, fit in zip(wanted, asked, fits, strict=True):
        if fit:
            assert net.done[one].base_offset == end
            end += len(values)
    taken = [value for values, fit in zip(wanted, fits, strict=True) if fit for value in values]
    net.advance(600)
    for node in net.processes:
        assert net.values_of(node) == taken
        assert max(batch_sizes(net, node)) <= LIMIT
    assert net.leader == leader


def test_followers_with_fetches_smaller_than_a_batch_make_progress() -> None:
    """A Fetch always brings at least one batch, or a large batch would stop a follower for ever."""
    net = Net(quorum=QuorumConfig(append_linger_ms=0, fetch_max_bytes=100))
    leader = net.elect()
    values = [bytes([number]) * 5_000 for number in range(5)]
    for value in values:
        net.submit(leader, value)
        net.settle()
    net.advance(600)
    assert all(net.values_of(node) == values for node in net.processes)


# A controller


def create(net: Net, name: str, partitions: int) -> Error:
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(number, [101]) for number in range(partitions)],
    )
    answer = net.ask(net.leader, CreateTopicsRequest(topics=[topic]))
    assert isinstance(answer, CreateTopicsResponse)
    return Error(answer.topics[0].error_code)


def test_a_topic_larger_than_a_batch_is_refused_as_by_kafka() -> None:
    """RecordBatchTooLargeException is RECORD_LIST_TOO_LARGE on the wire; all records of a request are one unit."""
    quorum = Quorum(quorum=small_batches(max_batch_bytes=6000))
    quorum.arrive(101)
    leader = quorum.leader
    before = quorum.net.processes[leader].replica.core.log.end_offset
    assert create(quorum.net, "large", 200) == Error.RECORD_LIST_TOO_LARGE
    assert quorum.net.processes[leader].replica.core.log.end_offset == before
    assert create(quorum.net, "small", 2) == Error.NONE
    for node in quorum.net.processes:
        assert set(quorum.controller(node).history.latest.topics) == {"small"}


# Memory


def test_a_leader_without_followers_bounds_its_backlog_and_recovers() -> None:
    net = Net(max_uncommitted_bytes=10_000, quorum=QuorumConfig(append_linger_ms=0, fetch_timeout_ms=20_000))
    leader = net.elect()
    net.cut = {leader}
    asked = [net.submit(leader, bytes(1000)) for _ in range(30)]
    net.settle()
    refused = [one for one in asked if one in net.done]
    assert {net.done[one].error for one in refused} == {Error.REQUEST_TIMED_OUT}
    assert not any(net.done[one].is_uncertain for one in refused)
    assert 9 <= 30 - len(refused) <= 11
    net.cut = set()
    taken = [one for one in asked if one not in refused]
    net.until(lambda: set(taken) <= set(net.done))
    assert [net.done[one].error for one in taken] == [Error.NONE] * len(taken)
    again = net.submit(leader, b"again")
    net.settle()
    assert net.done[again].error == Error.NONE
    assert net.processes[leader].replica.proposals.backlog.size_bytes == 0


def test_a_deposed_leader_releases_its_uncommitted_backlog() -> None:
    net = Net(max_uncommitted_bytes=10_000)
    former = net.elect()
    net.cut = {former}
    for _ in range(30):
        net.submit(former, bytes(1000))
    net.until(lambda: net.leader not in (0, former))
    net.cut = set()
    net.until(lambda: not net.processes[former].replica.core.is_leader)
    assert net.processes[former].replica.proposals.backlog.size_bytes == 0


# Callers


def appended(limit: int) -> tuple[Appends, Inbox[Input]]:
    inbox: Inbox[Input] = Inbox()
    return Appends(inbox, limit=limit, batch_bytes=0), inbox


def finish_next(appends: Appends, inbox: Inbox[Input]) -> None:
    submit = inbox.events.popleft()
    assert isinstance(submit, Submit)
    appends.finish(SubmitDone(submit_id=submit.submit_id, leader=LeaderAndEpoch(1, 1)))


async def started(nursery: trio.Nursery, appends: Appends, sizes: list[int], done: list[int]) -> None:
    async def append(number: int, size: int) -> None:
        await appends.room.wait()
        await appends.append_soon([bytes(size)])
        done.append(number)

    for number, size in enumerate(sizes):
        nursery.start_soon(append, number, size)
        await wait_all_tasks_blocked()


@pytest.mark.parametrize(
    ("sizes", "at_once"),
    [([100] * 20, 10), ([20_000, 100, 100], 1), ([100, 20_000, 100], 2)],
    ids=["small", "one that is too large goes alone", "a large one behind a small one"],
)
async def test_callers_wait_for_room_in_bytes(sizes: list[int], at_once: int) -> None:
    appends, inbox = appended(11_000)
    done: list[int] = []
    async with trio.open_nursery() as nursery:
        await started(nursery, appends, sizes, done)
        assert appends.outstanding == at_once
        while len(done) < len(sizes):
            finish_next(appends, inbox)
            await wait_all_tasks_blocked()
    assert done == list(range(len(sizes)))


async def test_a_completed_large_append_makes_room_for_many() -> None:
    appends, inbox = appended(11_000)
    async with trio.open_nursery() as nursery:
        await started(nursery, appends, [20_000, *[100] * 8], [])
        assert appends.outstanding == 1
        finish_next(appends, inbox)
        await wait_all_tasks_blocked()
        assert appends.outstanding == 8
        nursery.cancel_scope.cancel()
