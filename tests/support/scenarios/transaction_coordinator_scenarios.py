"""C33 to C39: transactional ids, and transactions whose coordinator, producer or leader dies."""

from __future__ import annotations

import struct
from typing import Final

from metadata_log.records.record import records
from metadata_log.records.transaction_state import TransactionLogValue
from support.interop.real_kafka import eventually
from support.scenarios.coordinator_client import (
    OURS,
    TRANSACTION,
    committed,
    coordinate,
    coordinated,
    coordinator_of,
    fail_over,
    fresh,
    wait_for_offset,
    written,
)
from support.scenarios.exactly_once import copy_under_faults
from support.scenarios.scenario_cluster import SECONDS, Cluster, Topic
from support.scenarios.transactional import AGAIN, TV1, TV2, Producer, read, wait_until_stable
from support.scenarios.transactional import committed as committed_values
from transport.protocol.errors import Error
from transport.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from transport.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
MARKER: Final = struct.Struct(">hi")
"""The value of a marker: its version, and the epoch of the coordinator that sent it."""
TIMEOUT_MS: Final = 4000
COPYING_SECONDS: Final = 20


def statuses(cluster: Cluster, name: str) -> list[int]:
    """The status of each record of a transactional id in the log."""
    found = [one.value for one in written(cluster, name, TRANSACTION)]
    return [one.transaction_status for one in found if isinstance(one, TransactionLogValue)]


def wait_for_status(cluster: Cluster, name: str, status: int) -> None:
    """Wait until the last record of a transactional id has a status."""
    eventually(lambda: statuses(cluster, name)[-1:] == [status], f"{name} comes to {status}", SECONDS)


def markers(cluster: Cluster, topic: Topic) -> list[tuple[bool, int, int]]:
    """The markers in a partition: whether they commit, the epoch of the producer, and that of the coordinator."""
    found: list[tuple[bool, int, int]] = []
    for one in cluster.batches(cluster.leader(topic), topic):
        if one.is_control:
            [record] = records(one)
            assert record.key is not None
            assert record.value is not None
            _, epoch = MARKER.unpack_from(record.value)
            found.append((record.key == b"\x00\x00\x00\x01", one.producer_epoch, epoch))
    return found


def described(cluster: Cluster, name: str) -> TransactionState:
    """A transactional id as DescribeTransactions shows it."""
    request = DescribeTransactionsRequest([name])
    [found] = coordinate(
        cluster,
        name,
        request,
        0,
        DescribeTransactionsResponse,
        lambda answer: [one.error_code for one in answer.transaction_states],
    ).transaction_states
    return found


def ended(producer: Producer, *, commits: bool, identity: tuple[int, int] | None = None) -> Error:
    """The error of an EndTxn, after those of transactions that are still being ended."""
    found: list[Error] = []

    def is_answered() -> bool:
        found.append(Error.of(producer.end_once(commits=commits, identity=identity).error_code))
        return found[-1] not in AGAIN

    eventually(is_answered, f"{producer.name} is answered", SECONDS)
    return found[-1]


@coordinated("C33", by_default=OURS)
def a_producer_id_has_the_epoch_that_the_table_says(cluster: Cluster) -> None:
    producer = Producer(cluster, fresh("t"), TV2)
    number, epoch = producer.identity
    assert epoch == 0
    producer.init()
    assert producer.identity == (number, 1)
    # An expected epoch: the last one, then the one before (the answer was lost), then one that never was.
    producer.init((number, 1))
    assert producer.identity == (number, 2)
    producer.init((number, 1))
    assert producer.identity == (number, 2)
    for identity, error in (
        ((number, 7), Error.PRODUCER_FENCED),
        ((number + 1, 2), Error.PRODUCER_FENCED),
        ((number, -1), Error.INVALID_REQUEST),
        ((-1, 2), Error.INVALID_REQUEST),
    ):
        assert producer.init_once(identity).error_code == error, identity
    for timeout in (0, -1, 900_001):
        producer.timeout_ms = timeout
        assert producer.init_once().error_code == Error.INVALID_TRANSACTION_TIMEOUT
    producer.timeout_ms = 60_000
    topic = cluster.create("c33")
    producer.send(topic, b"open")
    # The open transaction is aborted with one more epoch, and the producer gets another one.
    assert producer.init_once().error_code == Error.CONCURRENT_TRANSACTIONS
    producer.init()
    assert producer.identity == (number, 4)
    wait_until_stable(cluster, topic, 2)
    assert committed_values(cluster, topic) == []
    unnamed = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)
    asked = cluster.ask(coordinator_of(cluster, "", TRANSACTION), unnamed, 5, InitProducerIdResponse)
    assert asked.error_code == Error.INVALID_REQUEST
    ids = {cluster.producer_id(one)[0] for one in cluster.alive for _ in range(2)}
    assert len(ids) == 2 * len(cluster.alive), "each broker has numbers of its own"


@coordinated("C33")
def a_broker_that_has_just_begun_gets_producer_ids(cluster: Cluster) -> None:
    broker = cluster.alive[-1]
    cluster.stop(broker)
    cluster.start(broker)
    cluster.wait_until_active(broker)
    request = InitProducerIdRequest(transactional_id=None)
    answer = cluster.ask(broker, request, 5, InitProducerIdResponse)
    # A broker of Kafka asks for its first numbers when a producer does; one of ours may have them by then.
    assert answer.error_code in {Error.NONE, Error.COORDINATOR_LOAD_IN_PROGRESS}
    assert cluster.producer_id(broker)[1] == 0


@coordinated("C34", by_default=("ours", "mixed"))
def a_transaction_of_version_1_ends_as_its_state_allows(cluster: Cluster) -> None:
    first, second = cluster.create("c34"), cluster.create("c34")
    producer = Producer(cluster, fresh("t"), TV1)
    number, epoch = producer.identity
    invalid = Error.INVALID_TXN_STATE
    assert [ended(producer, commits=one) for one in (True, False)] == [invalid, invalid]
    for one in (first, second):
        producer.send(one, b"kept")
    assert ended(producer, commits=True, identity=(number + 1, epoch)) == Error.INVALID_PRODUCER_ID_MAPPING
    assert ended(producer, commits=True, identity=(number, epoch + 1)) == Error.PRODUCER_FENCED
    assert described(cluster, producer.name).transaction_state == "Ongoing"
    assert {one.topic for one in described(cluster, producer.name).topics} == {first.name, second.name}
    producer.end(commits=True)
    for one in (first, second):
        wait_until_stable(cluster, one, 2)
    wait_for_status(cluster, producer.name, COMPLETE_COMMIT)
    assert [ended(producer, commits=one) for one in (True, False)] == [Error.NONE, invalid]
    producer.send(first, b"dropped")
    producer.end(commits=False)
    wait_until_stable(cluster, first, 4)
    wait_for_status(cluster, producer.name, COMPLETE_ABORT)
    assert [ended(producer, commits=one) for one in (True, False)] == [invalid, Error.NONE]
    assert statuses(cluster, producer.name) == [
        *(EMPTY, ONGOING, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT),
        *(ONGOING, PREPARE_ABORT, COMPLETE_ABORT),
    ]
    assert [one[:2] for one in markers(cluster, first)] == [(True, epoch), (False, epoch)]
    assert [one[:2] for one in markers(cluster, second)] == [(True, epoch)]
    assert (committed_values(cluster, first), committed_values(cluster, second)) == ([b"kept"], [b"kept"])


@coordinated("C35", by_default=("ours", "mixed", "jvm"))
def each_transaction_of_version_2_has_an_epoch_of_its_own(cluster: Cluster) -> None:
    topic = cluster.create("c35")
    producer = Producer(cluster, fresh("t"), TV2)
    number, _ = producer.identity
    for epoch in range(3):
        assert producer.identity == (number, epoch)
        producer.send(topic, b"%d" % epoch)
        producer.end(commits=True)
        wait_for_status(cluster, producer.name, COMPLETE_COMMIT)
    assert producer.identity == (number, 3)
    # The answer to the last one was lost: the same again, and then one that nobody has ended.
    assert ended(producer, commits=True, identity=(number, 2)) == Error.NONE
    again = producer.end_once(commits=True, identity=(number, 2))
    assert (again.error_code, again.producer_id, again.producer_epoch) == (Error.NONE, number, 3)
    assert ended(producer, commits=True) == Error.INVALID_TXN_STATE
    assert ended(producer, commits=True, identity=(number, 1)) == Error.PRODUCER_FENCED
    wait_until_stable(cluster, topic, 6)
    assert [one[:2] for one in markers(cluster, topic)] == [(True, 1), (True, 2), (True, 3)]
    assert committed_values(cluster, topic) == [b"0", b"1", b"2"]
    # Without a transaction, an abort is one of nothing; its epoch is gone all the same.
    producer.end(commits=False)
    wait_for_status(cluster, producer.name, COMPLETE_ABORT)
    assert producer.identity == (number, 4)
    assert statuses(cluster, producer.name) == [
        EMPTY,
        *(ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT) * 3,
        *(PREPARE_ABORT, COMPLETE_ABORT),
    ]


@coordinated("C36")
def the_next_coordinator_sends_the_markers_of_a_decision(cluster: Cluster) -> None:
    for commits in (True, False):
        name = fresh("t")
        coordinator = coordinator_of(cluster, name, TRANSACTION)
        leader = next(one for one in cluster.alive if one != coordinator)
        topic = cluster.create("c36", (leader,))
        producer = Producer(cluster, name, TV2)
        producer.send(topic, b"decided")
        producer.end(commits=commits)
        wait_until_stable(cluster, topic, 2)
        [(_, _, before)] = markers(cluster, topic)
        producer.send(topic, b"undecided")
        # The leader takes no marker, and the decision is on disk.
        cluster.pause(leader)
        producer.end(commits=commits)
        assert statuses(cluster, name)[-1] == (PREPARE_COMMIT if commits else PREPARE_ABORT)
        cluster.kill(coordinator)
        cluster.resume(leader)
        assert coordinator_of(cluster, name, TRANSACTION) != coordinator
        wait_for_status(cluster, name, COMPLETE_COMMIT if commits else COMPLETE_ABORT)
        # The leader may have had the marker of the former coordinator, too, in a connection that nobody read.
        *_, (is_commit, epoch, after) = markers(cluster, topic)
        assert (is_commit, epoch) == (commits, 2)
        assert after > before
        assert read(cluster, topic).last_stable_offset >= 4
        assert committed_values(cluster, topic) == ([b"decided", b"undecided"] if commits else [])
        cluster.restore()


@coordinated("C37")
def offsets_of_an_open_transaction_wait_at_the_next_coordinator(cluster: Cluster) -> None:
    topic = cluster.create("c37")
    for version in (TV1, TV2):
        group = fresh("g")
        producer = Producer(cluster, fresh("t"), version)
        producer.commit_offset(group, topic, 5)
        unstable = (-1, Error.UNSTABLE_OFFSET_COMMIT)
        assert committed(cluster, group, topic, stable=True) == unstable
        former, _ = fail_over(cluster, group)
        assert committed(cluster, group, topic, stable=True) == unstable
        cluster.start(former)
        cluster.wait_until_active(former)
        fail_over(cluster, producer.name, TRANSACTION)
        producer.end(commits=True)
        wait_for_offset(cluster, group, topic, 5)
        cluster.restore()


@coordinated("C38")
def time_ends_a_transaction(cluster: Cluster) -> None:
    topic = cluster.create("c38")
    for version in (TV1, TV2):
        producer = Producer(cluster, fresh("t"), version, timeout_ms=TIMEOUT_MS)
        number, epoch = producer.identity
        offset = producer.send(topic, b"left")
        assert read(cluster, topic).last_stable_offset == offset
        wait_until_stable(cluster, topic, offset + 2)
        wait_for_status(cluster, producer.name, COMPLETE_ABORT)
        assert markers(cluster, topic)[-1][:2] == (False, epoch + 1)
        assert producer.offer(topic, b"late").error_code == Error.INVALID_PRODUCER_EPOCH
        if version == TV1:
            assert ended(producer, commits=False) == Error.PRODUCER_FENCED
        else:
            # The abort is done already, and answered as if it were this one.
            assert ended(producer, commits=True) == Error.INVALID_TXN_STATE
            producer.end(commits=False)
            assert producer.identity == (number, epoch + 1)
        producer.init(producer.identity)
        assert producer.identity[1] > epoch
        producer.send(topic, b"goes on")
        producer.end(commits=True)
        wait_for_status(cluster, producer.name, COMPLETE_COMMIT)
    assert committed_values(cluster, topic) == [b"goes on", b"goes on"]


@coordinated("C39")
def each_record_is_copied_exactly_once(cluster: Cluster) -> None:
    copy_under_faults(cluster, COPYING_SECONDS)
