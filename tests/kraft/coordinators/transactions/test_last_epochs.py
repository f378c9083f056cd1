"""A producer id with its last epoch: every path that raises the epoch takes a new id, and nothing is stuck.

Kafka: `TransactionMetadata.isProducerEpochExhausted`, and `checkProducerEpoch` for a log that holds the highest epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random

import pytest
from msgspec import structs

from kraft.coordinators.runtime.shard import Context, CoordinatorResult
from kraft.coordinators.transactions.shard import TransactionShard, record_of
from kraft.coordinators.transactions.transaction import (
    FENCING_EPOCH,
    LAST_EPOCH,
    Decision,
    Expected,
    Status,
    Transaction,
    add,
    complete,
    end,
    fence,
    initialize,
    needs_id,
)
from metadata_log.records.coordinator import encode_value
from metadata_log.types import NO_PRODUCER
from support.broker.coordinated_brokers import Coordinated
from support.broker.operations import Doing
from support.broker.transactional_producers import FIRST, NAME, OlderProducer, Producer, committed, markers, state_of
from transport.protocol.errors import Error

PARTS = frozenset({("out", 0)})


def with_epoch(cluster: Coordinated, producer: Producer, epoch: int) -> None:
    """Give the producer of the id this epoch, as a long life would, or an older coordinator."""
    runtime = cluster.brokers.requests[FIRST].transactions
    number = runtime.number_of(NAME)
    shard = runtime.partitions[number].shard
    assert isinstance(shard, TransactionShard), shard

    def decide(shard: TransactionShard, context: Context) -> CoordinatorResult:
        known = shard.known(context.state, NAME)
        assert known is not None
        return shard.decided(NAME, Decision(written=structs.replace(known, epoch=epoch)), context)

    runtime.write(number, Doing(decide), cluster.brokers.now_ms)
    cluster.settle()
    producer.epoch = epoch


def time_out(cluster: Coordinated) -> None:
    for _ in range(3):
        cluster.settle(after_ms=2000)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("epoch", [LAST_EPOCH - 1, LAST_EPOCH, FENCING_EPOCH])
def test_a_transaction_that_times_out_at_the_last_epoch_ends(epoch: int, version: int) -> None:
    cluster = Coordinated(version=version, abort_interval_ms=1000)
    make = Producer if version >= 2 else OlderProducer
    producer = make(cluster, timeout_ms=1500)
    first = producer.id
    with_epoch(cluster, producer, epoch)
    assert producer.produce(1, b"x") is Error.NONE
    time_out(cluster)
    assert state_of(cluster, FIRST).transaction_state == "CompleteAbort"
    assert markers(cluster, 1)[-1] == (min(epoch + 1, FENCING_EPOCH), 0, True)
    assert committed(cluster, 1) == []
    if version >= 2:
        assert producer.end(commit=False) is Error.NONE
        assert (producer.id == first) == (epoch < LAST_EPOCH)
    else:
        # Below version 2 a producer that was too slow is out. One with the highest epoch cannot be fenced.
        late = producer.end(commit=False)
        assert late is (Error.PRODUCER_FENCED if epoch < FENCING_EPOCH else Error.NONE)
        producer = make(cluster)
        assert producer.id != first
    assert producer.epoch <= LAST_EPOCH
    assert producer.produce(1, b"y") is Error.NONE
    assert producer.end(commit=True) is Error.NONE
    assert committed(cluster, 1) == [b"y"]


def test_a_producer_of_version_2_with_the_last_epoch_is_out_where_no_record_holds_the_next_id() -> None:
    cluster = Coordinated(version=0)
    producer = Producer(cluster)
    with_epoch(cluster, producer, LAST_EPOCH)
    assert producer.produce(1, b"x") is Error.NONE
    assert producer.end(commit=True) is Error.PRODUCER_FENCED
    new = Producer(cluster)
    assert new.id != producer.id
    assert new.produce(1, b"y") is Error.NONE
    assert new.end(commit=True) is Error.NONE
    assert committed(cluster, 1) == [b"y"]


@pytest.mark.parametrize("epoch", [LAST_EPOCH, FENCING_EPOCH])
def test_the_next_producer_goes_on_from_an_open_transaction_at_the_last_epoch(epoch: int) -> None:
    cluster = Coordinated()
    old = Producer(cluster)
    with_epoch(cluster, old, epoch)
    assert old.produce(1, b"x") is Error.NONE
    assert old.initialize().error_code == Error.CONCURRENT_TRANSACTIONS
    new = Producer(cluster)
    assert new.id != old.id
    assert new.epoch < 5
    assert new.produce(1, b"y") is Error.NONE
    assert new.end(commit=True) is Error.NONE
    assert committed(cluster, 1) == [b"y"]


def test_a_time_out_waits_for_a_producer_id(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Coordinated(abort_interval_ms=1000)
    producer = Producer(cluster, timeout_ms=1500)
    with_epoch(cluster, producer, LAST_EPOCH)
    assert producer.produce(1, b"x") is Error.NONE
    shard = cluster.brokers.requests[FIRST].transactions.partitions[0].shard
    take = shard._take_id  # type: ignore[attr-defined]
    monkeypatch.setattr(shard, "_take_id", lambda: None)
    time_out(cluster)
    assert state_of(cluster, FIRST).transaction_state == "Ongoing"
    monkeypatch.setattr(shard, "_take_id", take)
    time_out(cluster)
    assert state_of(cluster, FIRST).transaction_state == "CompleteAbort"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_whatever_happens_near_the_last_epoch_is_written_and_ends(version: int) -> None:
    """Producers, time-outs and ends in any order: records hold their epochs, and no answer has the highest one."""
    for seed in range(150):
        rng, ids = Random(seed), count(100)
        epoch = rng.choice((LAST_EPOCH - 2, LAST_EPOCH - 1, LAST_EPOCH, FENCING_EPOCH))
        one = Transaction(
            producer_id=7, epoch=epoch, status=Status.EMPTY, timeout_ms=1000, updated_ms=0, previous_producer_id=7
        )
        mine = Expected(7, epoch)
        for now_ms in range(12):
            for written in _step(rng, one, mine, ids, version, now_ms):
                if isinstance(written, Expected):
                    mine = written
                    continue
                assert 0 <= written.epoch <= FENCING_EPOCH, (seed, written)
                encode_value(record_of("id", written, version).value, 0 if version < 1 else None)  # type: ignore[arg-type]
                one = written
            if one.status is Status.ONGOING:
                known = fence(one, now_ms, version=version, next_id=200 if needs_id(one, version) else NO_PRODUCER)
                assert complete(known, now_ms).status.is_over, (seed, one)


def _step(
    rng: Random, one: Transaction, mine: Expected, ids: Iterator[int], version: int, now_ms: int
) -> Iterator[Transaction | Expected]:
    """What is written, and what the producer is told."""
    bumping = 2 if version >= 2 else 0
    decision = Decision()
    match rng.randrange(5):
        case 0:
            given = rng.choice((None, mine))
            decision = initialize(one, given, 1000, lambda: next(ids), now_ms, is_pending=False, version=version)
        case 1:
            decision = add(one, mine, PARTS, now_ms, is_pending=False, client_version=bumping)
        case 2:
            commits = rng.random() < 0.5
            decision = end(
                one, mine, lambda: next(ids), now_ms, is_commit=commits, is_pending=False, client_version=bumping
            )
        case 3 if one.status is Status.ONGOING:
            next_id = next(ids) if needs_id(one, version) else NO_PRODUCER
            yield fence(one, now_ms, version=version, next_id=next_id)
        case 4 if one.status.is_ending:
            yield complete(one, now_ms)
    if decision.written is not None:
        yield decision.written
    if decision.error is Error.NONE and decision.producer_id != NO_PRODUCER:
        started_above = mine.epoch > LAST_EPOCH
        assert decision.epoch <= LAST_EPOCH or (started_above and decision.producer_id == 7), decision
        yield Expected(decision.producer_id, decision.epoch)
