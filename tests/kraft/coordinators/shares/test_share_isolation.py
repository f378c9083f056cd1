"""Members of a group that reads only what is committed: aborted records, markers, and transactions that go on."""

from __future__ import annotations

from typing import Any, Final

import pytest

from kraft.coordinators.shares.persister import ShareKey
from kraft.partitions.log.outcomes import Appended
from kraft.partitions.log.transaction_markers import TransactionMarker
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from support.broker.request_brokers import NewTopic, batch, topic_id
from support.broker.share_leaders import ShareBrokers, acquired, share_acknowledge, share_fetch

T: Final = NewTopic("t", topic_id(1), ((101,),))
KEY: Final = ShareKey("g", T.id, 0)
COMMITTED: Final = "read_committed"


def world(level: str = COMMITTED) -> ShareBrokers:
    """A group that begins at the start of the log."""
    brokers = ShareBrokers([T])
    brokers.configure("g", share_auto_offset_reset="earliest", share_isolation_level=level)
    brokers.begin("g", T)
    return brokers


def append(brokers: ShareBrokers, *appended: bytes | TransactionMarker) -> None:
    """Append batches, and the ends of transactions, at the leader."""
    manager = brokers.brokers.managers[101]
    part = manager.partitions[T.id, 0]
    for each in appended:
        if isinstance(each, TransactionMarker):
            done = manager.leaders.append_marker(part, each, brokers.now_ms)
        else:
            done = manager.leaders.append(part, each, brokers.now_ms)
        assert isinstance(done, Appended), done
    brokers.settle()


def of_transaction(*values: bytes) -> bytes:
    """A batch of a transaction."""
    found = [Record(at, 0, 0, None, value) for at, value in enumerate(values)]
    return write_batch(found, epoch=-1, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)


def marker(*, is_commit: bool = False) -> TransactionMarker:
    """The end of the transaction."""
    return TransactionMarker(producer_id=7, producer_epoch=0, is_commit=is_commit, coordinator_epoch=0)


def with_an_aborted_transaction(brokers: ShareBrokers) -> None:
    """Two records, two of an aborted transaction, its marker, and another record."""
    append(brokers, batch(b"a", b"b"), of_transaction(b"x", b"y"), marker(), batch(b"c"))


def error_of(answer: Any) -> int:
    code: int = answer.responses[0].partitions[0].error_code
    return code


def test_whoever_reads_everything_gets_aborted_records() -> None:
    brokers = world("read_uncommitted")
    with_an_aborted_transaction(brokers)
    assert acquired(brokers.ask(101, share_fetch(T))) == [(0, 0, 5, 1)]


def test_aborted_records_are_not_delivered_and_a_marker_is_a_gap() -> None:
    """The recorded session `isolation`."""
    brokers = world()
    with_an_aborted_transaction(brokers)
    assert acquired(brokers.ask(101, share_fetch(T))) == [(0, 0, 1, 1), (0, 4, 5, 1)]
    assert error_of(brokers.ask(101, share_acknowledge(T, 1, (2, 3, [1])))) == 121
    assert error_of(brokers.ask(101, share_acknowledge(T, 2, (0, 1, [1]), (4, 5, [0, 1])))) == 0
    [(_, write)] = brokers.persister.writes
    states = [(one.first_offset, one.last_offset, one.delivery_state) for one in write.batches]
    assert states == [(0, 1, 2), (4, 4, 4), (5, 5, 2)]
    led = brokers.brokers.requests[101].load_shares().fetch.leader.led[KEY]
    assert led.partition is not None
    assert led.partition.start == 6


@pytest.mark.parametrize(("is_commit", "rest"), [(False, [(0, 3, 5, 1)]), (True, [(0, 1, 5, 1)])])
def test_a_transaction_that_goes_on_stalls_the_group(is_commit: bool, rest: list[tuple[int, int, int, int]]) -> None:
    """The recorded session `isolation-open`."""
    brokers = world()
    append(brokers, batch(b"a"), of_transaction(b"x", b"y"), batch(b"c"))
    assert acquired(brokers.ask(101, share_fetch(T))) == [(0, 0, 0, 1)]
    waiting = brokers.send(101, share_fetch(T, 1, wait_ms=10_000))
    brokers.wait(brokers.now_ms + 1000)
    append(brokers, batch(b"d"))
    assert waiting not in brokers.answered
    append(brokers, marker(is_commit=is_commit))
    assert acquired(brokers.answered[waiting]) == rest


def test_another_level_counts_from_the_next_fetch_on() -> None:
    brokers = world("read_uncommitted")
    with_an_aborted_transaction(brokers)
    brokers.ask(101, share_fetch(T))
    brokers.configure("g", share_isolation_level=COMMITTED)
    # What is delivered already may be acknowledged, or given back, as before.
    assert error_of(brokers.ask(101, share_acknowledge(T, 1, (0, 5, [2])))) == 0
    assert acquired(brokers.ask(101, share_fetch(T, 2))) == [(0, 0, 1, 2), (0, 4, 5, 2)]
