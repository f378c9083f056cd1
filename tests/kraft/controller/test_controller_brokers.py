"""Brokers and the controller: what a heartbeat is answered in which state, silence, restarts, old metadata versions."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.controller.decision.broker_sessions import UNHEARD_SHARE
from metadata_log.records.metadata import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from support.differential.controller_cluster import Cluster
from support.differential.controller_sides import InProcess, incarnation
from support.differential.controller_stories import A, B, C, create, heartbeat, register, topic
from transport.protocol.errors import Error

SESSION_MS = 9000


FENCED, UNFENCED, STOPPING = "fenced", "unfenced", "stopping"


@pytest.mark.parametrize(
    ("state", "beat", "answer", "kinds"),
    [
        (FENCED, {"want_shut_down": True}, (True, True, True), ["fenced"]),
        (FENCED, {}, (True, False, False), ["unfenced"]),
        (FENCED, {"offset": 0}, (False, True, False), []),
        (FENCED, {"want_fence": True}, (True, True, False), []),
        (FENCED, {"want_fence": True, "want_shut_down": True}, (True, True, True), ["fenced"]),
        (UNFENCED, {"want_fence": True, "want_shut_down": True}, (True, True, True), ["moved", "fenced"]),
        (UNFENCED, {"want_fence": True}, (True, True, False), ["moved", "fenced"]),
        (UNFENCED, {"want_shut_down": True}, (True, False, False), ["stopping", "moved"]),
        (UNFENCED, {}, (True, False, False), []),
        (UNFENCED, {"offset": 0}, (False, False, False), []),
        (STOPPING, {"want_shut_down": True}, (True, True, True), ["fenced"]),
        (STOPPING, {}, (True, True, True), ["fenced"]),
    ],
)
def test_heartbeats_follow_the_table_of_broker_states(
    state: str, beat: dict[str, Any], answer: tuple[bool, bool, bool], kinds: list[str]
) -> None:
    cluster = Cluster(A, B)
    cluster.do(create(topic("t", [A, B])))
    if state == FENCED:
        cluster.do(heartbeat(A, want_fence=True))
    elif state == STOPPING:
        cluster.do(heartbeat(A, want_shut_down=True), heartbeat(B))
    before = len(cluster.controller.batches)
    said = cluster.do(heartbeat(A, **beat))
    assert (said["is_caught_up"], said["is_fenced"], said["should_shut_down"]) == answer
    names = {
        cluster.change(A, fenced=1): "fenced",
        cluster.change(A, fenced=-1): "unfenced",
        cluster.change(A, in_controlled_shutdown=1): "stopping",
        cluster.moved("t", isr=(B,), leader=B): "moved",
    }
    assert [names[record] for record in cluster.since(before)] == kinds


# Silence


def test_a_silent_broker_is_fenced_as_soon_as_its_session_is_over() -> None:
    """Kafka looks for silent brokers eight times a session; here the next session that may be over sets the time."""
    cluster = Cluster(A, B)
    cluster.do(create(topic("t", [A, B])))
    cluster.do(heartbeat(A), heartbeat(B))
    before = len(cluster.controller.batches)
    cluster.controller.advance(SESSION_MS)
    assert cluster.since(before) == []
    cluster.controller.advance(1 + SESSION_MS // 180)
    fenced = [record for record in cluster.since(before) if isinstance(record, BrokerRegistrationChangeRecord)]
    assert A in {record.broker_id for record in fenced}


def test_brokers_with_expired_sessions_are_fenced_one_batch_each() -> None:
    cluster = Cluster(A, B, C)
    cluster.do(create(topic("t", [A, B, C])))
    before = len(cluster.controller.batches)
    cluster.controller.advance(SESSION_MS + SESSION_MS // 8 + 20)
    fenced = [record for record in cluster.since(before) if isinstance(record, BrokerRegistrationChangeRecord)]
    assert sorted(record.broker_id for record in fenced) == [A, B, C]
    assert len(cluster.controller.batches) - before == 3
    assert cluster.partition("t").leader == -1
    assert cluster.partition("t").last_known_elr == (fenced[-1].broker_id,)


def test_a_new_incarnation_waits_for_the_session_of_the_old_one() -> None:
    cluster = Cluster(A, B)
    again = register(A, incarnation_id=incarnation(A, 1))
    assert cluster.do(again)["error_code"] == 101
    cluster.controller.advance(SESSION_MS)
    assert cluster.do(again)["error_code"] == 101
    cluster.controller.advance(1)
    assert cluster.do(again)["error_code"] == 0


def fail_over(cluster: Cluster) -> None:
    """Another controller becomes active, which has heard no broker."""
    assert isinstance(cluster.controller, InProcess)
    inner = cluster.controller.controller
    inner.renounce()
    inner.activate(2, cluster.controller.end, cluster.controller.now_ms)


@pytest.mark.parametrize("is_heard", [False, True])
def test_after_a_failover_an_incarnation_that_is_silent_keeps_others_out_for_less(*, is_heard: bool) -> None:
    """A broker that died with the majority of the controllers is not waited for by a session after their return."""
    cluster = Cluster(A, B)
    again = register(A, incarnation_id=incarnation(A, 1))
    fail_over(cluster)
    if is_heard:
        cluster.do(heartbeat(A))
    patience_ms = SESSION_MS if is_heard else SESSION_MS // UNHEARD_SHARE
    cluster.controller.advance(patience_ms)
    assert cluster.do(again)["error_code"] == Error.DUPLICATE_BROKER_REGISTRATION
    cluster.controller.advance(1)
    assert cluster.do(again)["error_code"] == Error.NONE


# Restarts


def test_the_broker_epoch_is_the_offset_of_the_first_record_of_its_batch() -> None:
    cluster = Cluster(A, B)
    cluster.do(create(topic("t", [A, B], [B, A])))
    cluster.controller.advance(SESSION_MS + 1)
    end = cluster.controller.end
    written = cluster.records(register(A, incarnation_id=incarnation(A, 1)))
    assert [type(record) for record in written] == [PartitionChangeRecord] * 2 + [RegisterBrokerRecord]
    assert cluster.side.epochs[A] == end
    assert isinstance(written[-1], RegisterBrokerRecord)
    assert (written[-1].broker_epoch, written[-1].fenced) == (end, True)
    assert cluster.do(heartbeat(A, offset=end + 1))["is_caught_up"] is False
    assert cluster.do(heartbeat(A, offset=end + 2))["is_caught_up"] is True


def test_a_process_that_registers_again_keeps_its_epoch_and_state() -> None:
    cluster = Cluster(A)
    epoch = cluster.side.epochs[A]
    written = cluster.records(register(A, rack="elsewhere"))
    assert cluster.side.epochs[A] == epoch
    assert [(record.fenced, record.rack) for record in written if isinstance(record, RegisterBrokerRecord)] == [
        (False, "elsewhere")
    ]
    assert cluster.do(heartbeat(A))["is_fenced"] is False


# Metadata versions


@pytest.mark.parametrize(
    ("level", "registration", "partition", "has_directories"),
    [
        (7, 1, 0, False),
        (8, 2, 0, False),
        (14, 2, 0, False),
        (17, 3, 1, True),
        (21, 3, 1, True),
        (25, 3, 2, True),
        (30, 4, 2, True),
    ],
)
def test_records_are_written_as_the_metadata_version_says(
    level: int, registration: int, partition: int, *, has_directories: bool
) -> None:
    bootstrap = (FeatureLevelRecord(name="metadata.version", feature_level=level),)
    cluster = Cluster(A, B, bootstrap=bootstrap)
    cluster.do(create(topic("t", [A, B])), heartbeat(A, want_fence=True))
    versions = {type(record): (version, record) for batch in cluster.controller.batches for version, record in batch}
    assert versions[RegisterBrokerRecord][0] == registration
    assert versions[PartitionChangeRecord][0] == partition
    assert versions[BrokerRegistrationChangeRecord][0] == 0
    assert bool(cluster.controller.controller.history.latest.brokers.by_id[A].directories) is has_directories


@pytest.mark.parametrize(("level", "bumped"), [(11, True), (12, False)])
def test_isr_shrinks_raise_the_leader_epoch_only_before_3_6(level: int, *, bumped: bool) -> None:
    bootstrap = (FeatureLevelRecord(name="metadata.version", feature_level=level),)
    cluster = Cluster(A, B, bootstrap=bootstrap)
    cluster.do(create(topic("t", [A, B])))
    cluster.do(heartbeat(B, want_fence=True))
    assert cluster.partition("t").leader_epoch == int(bumped)


# Placement


def test_no_replica_is_placed_on_a_broker_that_shuts_down() -> None:
    """It leads in the meantime and is not fenced yet; a replica on it would be out of the ISR from the begin."""
    cluster = Cluster(A, B, C)
    cluster.do(create(topic("led", [C, A])), heartbeat(C, want_shut_down=True), heartbeat(A), heartbeat(B))
    cluster.do(create(topic("placed", count=12, factor=2)))
    assert {cluster.leads("placed", number)[1] for number in range(12)} == {(A, B), (B, A)}
    said = cluster.do(create(topic("too-wide", count=1, factor=3)))
    [told] = said["topics"]
    assert told["error_code"] == Error.INVALID_REPLICATION_FACTOR
    assert "only 2 broker(s)" in told["error_message"]
    # A user may name it, and it is then no member of the ISR.
    cluster.do(create(topic("named", [C, B])))
    assert cluster.leads("named") == (B, (B,))
