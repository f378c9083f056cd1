"""C33 to C39: transactional ids, and transactions whose coordinator, producer or leader dies."""

from __future__ import annotations

import struct
from typing import Final

from exactly_once import copy_under_faults
from metadata_log.records.record import records
from metadata_log.records.transaction_state import TransactionLogValue
from support.interop.real_kafka import eventually
from support.scenarios.coordinator_client import (
    TRANSACTION,
    committed,
    coordinated,
    coordinator_of,
    fail_over,
    fresh,
    wait_for_offset,
    written,
)
from support.scenarios.scenario_cluster import SECONDS, Cluster, Topic
from transactions_by_hand import TV1, TV2, Producer, read, wait_until_stable
from transactions_by_hand import committed as committed_values
from transport.protocol.errors import Error
from transport.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
MARKER: Final = struct.Struct(">hi")
"""The value of a marker: its version, and the epoch of the coordinator that sent it."""
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


@coordinated("C39")
def each_record_is_copied_exactly_once(cluster: Cluster) -> None:
    copy_under_faults(cluster, COPYING_SECONDS)
