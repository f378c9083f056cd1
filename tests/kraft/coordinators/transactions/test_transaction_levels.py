"""Every level of `transaction.version`, and every change of it, with producers below version 2 and of it."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from metadata_log.records.batch import scan
from metadata_log.records.coordinator import TRANSACTION_STATE, decode_pair
from metadata_log.records.metadata import FeatureLevelRecord
from metadata_log.records.record import records
from metadata_log.records.transaction_state import TransactionLogValue
from support.broker.coordinated_brokers import OUT, STATE, Coordinated
from support.broker.transactional_producers import (
    FIRST,
    NEXT,
    OlderProducer,
    Producer,
    committed,
    fail_over,
    markers,
    offset_of,
    state_of,
)
from transport.protocol.errors import Error
from transport.protocol.messages.list_transactions import ListTransactionsRequest

LEVELS = (0, 1, 2)
PRODUCERS: dict[str, type[Producer]] = {"older": OlderProducer, "of version 2": Producer}


def set_level(cluster: Coordinated, level: int) -> None:
    cluster.brokers.change(FeatureLevelRecord(name="transaction.version", feature_level=level))
    cluster.settle()


def log_of(cluster: Coordinated, broker: int = FIRST) -> list[tuple[int, TransactionLogValue]]:
    """The values in the log of the coordinator, with their versions."""
    data = cluster.brokers.part(broker, (STATE, 0)).log.read(0, 1 << 20)
    assert isinstance(data, bytes), data
    found = []
    for batch in scan(data):
        for one in records(batch):
            pair = decode_pair(TRANSACTION_STATE, one.key or b"", one.value)
            assert pair is not None
            assert isinstance(pair.value, TransactionLogValue)
            assert pair.version is not None
            found.append((pair.version, pair.value))
    return found


@pytest.mark.parametrize("kind", PRODUCERS)
@pytest.mark.parametrize("level", LEVELS)
def test_a_producer_works_at_every_level(level: int, kind: str) -> None:
    """All APIs of a transactional producer: begin, records, offsets, commit, abort, and a new start of the producer."""
    cluster = Coordinated(version=level, groups=((102, 103),))
    producer = PRODUCERS[kind](cluster)
    for at, commit in enumerate((True, False, True)):
        assert producer.produce(1, b"%d" % at) is Error.NONE
        assert producer.commit_offset(at + 1) is Error.NONE
        assert producer.end(commit=commit) is Error.NONE
    assert committed(cluster, 1) == [b"0", b"2"]
    assert offset_of(cluster) == (Error.NONE, 3)
    again = producer.initialize(producer.id, producer.epoch)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (Error.NONE, producer.id, producer.epoch + 1)
    assert {version for version, _ in log_of(cluster)} == {0 if level == 0 else 1}
    assert state_of(cluster, FIRST).transaction_state == "Empty"
    assert len(cluster.ask(FIRST, ListTransactionsRequest(), 1).transaction_states) == 1


@pytest.mark.parametrize("kind", PRODUCERS)
@pytest.mark.parametrize(("before", "after"), list(product(LEVELS, LEVELS)))
def test_a_level_changes_in_each_phase_of_a_transaction(before: int, after: int, kind: str) -> None:
    """While a transaction is open, and while its markers wait; then the next coordinator loads what is there."""
    cluster = Coordinated(version=before, groups=((102, 103),))
    producer = PRODUCERS[kind](cluster)
    assert producer.produce(1, b"a") is Error.NONE
    set_level(cluster, after)
    assert producer.produce(2, b"a") is Error.NONE
    assert producer.end(commit=True) is Error.NONE
    set_level(cluster, before)
    assert producer.produce(1, b"b") is Error.NONE
    assert producer.commit_offset(5) is Error.NONE
    assert producer.end(commit=True, markers=False) is Error.NONE
    set_level(cluster, after)
    fail_over(cluster)
    producer.coordinator = NEXT
    assert state_of(cluster, NEXT).transaction_state == "CompleteCommit"
    assert log_of(cluster, NEXT)[-1][0] == (0 if after == 0 else 1)
    assert [committed(cluster, number) for number in (1, 2)] == [[b"a", b"b"], [b"a"]]
    assert offset_of(cluster) == (Error.NONE, 5)
    assert producer.produce(1, b"c") is Error.NONE
    assert producer.end(commit=True) is Error.NONE
    assert committed(cluster, 1) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(("before", "after"), list(product(LEVELS, LEVELS)))
def test_a_transaction_that_times_out_ends_by_the_present_level(before: int, after: int) -> None:
    """No topic changes with the level: what the coordinator does by itself follows all the same."""
    cluster = Coordinated(version=before, abort_interval_ms=1000)
    producer = OlderProducer(cluster, timeout_ms=1500)
    assert producer.produce(1, b"x") is Error.NONE
    set_level(cluster, after)
    for _ in range(3):
        cluster.settle(after_ms=2000)
    assert state_of(cluster, FIRST).transaction_state == "CompleteAbort"
    assert markers(cluster, 1) == [(1, 0, True)]
    version, value = log_of(cluster)[-1]
    assert (version, value.client_transaction_version) == (min(after, 1), 2 if after == 2 else 0)
    # Only from version 2 on a producer goes on by the epoch that has ended its transaction.
    late: Any = producer.initialize(producer.id, producer.epoch)
    assert late.error_code == (Error.NONE if after == 2 else Error.PRODUCER_FENCED)


def test_the_markers_of_a_level_that_is_gone_are_sent_as_they_were_decided() -> None:
    """A decision with a new producer id, of version 2; then the level falls to 0 before the markers are out."""
    cluster = Coordinated()
    producer = Producer(cluster)
    assert producer.produce(1, b"x") is Error.NONE
    assert producer.end(commit=True, markers=False) is Error.NONE
    set_level(cluster, 0)
    cluster.settle(after_ms=100)
    assert markers(cluster, 1) == [(1, 0, False)]
    assert cluster.brokers.image.topics.by_id[OUT].partitions[1].leader == 103
    assert committed(cluster, 1) == [b"x"]
