"""The partition state machine in tables: each rule of elections, eligible replicas and reassignments alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.controller.topics.leader_selection import Election
from kraft.controller.topics.partition_change import UNCHANGED, PartitionTarget, Rules, in_hash_order, partition_change
from metadata_log.image import Partition, merge
from metadata_log.records.metadata import PartitionChangeRecord
from metadata_log.types import Uuid

TOPIC = Uuid(bytes(range(16)))
HOME = Uuid(b"d" * 16)


def partition(**fields: Any) -> Partition:
    replicas = fields.get("replicas", (1, 2, 3))
    assert isinstance(replicas, tuple)
    facts: dict[str, Any] = {
        "replicas": replicas,
        "directories": (HOME,) * len(replicas),
        "isr": replicas,
        "removing_replicas": (),
        "adding_replicas": (),
        "elr": (),
        "last_known_elr": (),
        "leader": replicas[0],
        "leader_recovery_state": 0,
        "leader_epoch": 5,
        "partition_epoch": 9,
    }
    return Partition(**(facts | fields))


def rules(active: tuple[int, ...], *, min_isr: int = 1, elr: bool = False, metadata_version: int = 30) -> Rules:
    return Rules(
        is_acceptable=lambda _, broker: broker in active,
        default_directory=lambda _: HOME,
        metadata_version=metadata_version,
        min_isr=min_isr,
        elr_enabled=elr,
    )


def change(**fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=0, topic_id=TOPIC, **fields)


LEADERLESS = {"isr": (), "leader": -1}

CASES: dict[str, tuple[Partition, PartitionTarget, Rules, Election, PartitionChangeRecord | None]] = {
    "nothing to do": (partition(), UNCHANGED, rules((1, 2, 3)), Election.ONLINE, None),
    "the leader leaves": (
        partition(),
        PartitionTarget(isr=(2, 3)),
        rules((2, 3)),
        Election.ONLINE,
        change(isr=(2, 3), leader=2),
    ),
    "a follower leaves, and the leader epoch stays": (
        partition(),
        PartitionTarget(isr=(1, 2)),
        rules((1, 2)),
        Election.ONLINE,
        change(isr=(1, 2)),
    ),
    "before 3.6 the leader epoch grows with it": (
        partition(),
        PartitionTarget(isr=(1, 2)),
        rules((1, 2), metadata_version=11),
        Election.ONLINE,
        change(isr=(1, 2), leader=1),
    ),
    "the last one leaves: it stays in the ISR": (
        partition(isr=(1,)),
        PartitionTarget(isr=()),
        rules(()),
        Election.ONLINE,
        change(leader=-1),
    ),
    "the last one leaves: it becomes eligible": (
        partition(isr=(1,)),
        PartitionTarget(isr=()),
        rules((), min_isr=2, elr=True),
        Election.ONLINE,
        change(isr=(), leader=-1, eligible_leader_replicas=(1,), last_known_elr=(1,)),
    ),
    "below min ISR replicas that leave stay eligible": (
        partition(),
        PartitionTarget(isr=(1,)),
        rules((1,), min_isr=2, elr=True),
        Election.ONLINE,
        change(isr=(1,), eligible_leader_replicas=(2, 3)),
    ),
    "but not after an unclean shutdown": (
        partition(),
        PartitionTarget(isr=(1,), unclean_shutdown=(3,)),
        rules((1,), min_isr=2, elr=True),
        Election.ONLINE,
        change(isr=(1,), eligible_leader_replicas=(2,)),
    ),
    "with enough in sync no other replica is eligible": (
        partition(isr=(1,), elr=(2, 3)),
        PartitionTarget(isr=(1, 2)),
        rules((1, 2), min_isr=2, elr=True),
        Election.ONLINE,
        change(isr=(1, 2), eligible_leader_replicas=()),
    ),
    "an eligible one leads, and that is clean": (
        partition(elr=(2, 3), last_known_elr=(3,), **LEADERLESS),
        UNCHANGED,
        rules((3,), min_isr=2, elr=True),
        Election.ONLINE,
        change(isr=(3,), leader=3, eligible_leader_replicas=(2,), last_known_elr=()),
    ),
    "the last known leader leads, and that is not": (
        partition(last_known_elr=(3,), **LEADERLESS),
        UNCHANGED,
        rules((2, 3), min_isr=2, elr=True),
        Election.ONLINE,
        change(isr=(3,), leader=3, leader_recovery_state=1, last_known_elr=()),
    ),
    "an unclean election takes the first that lives": (
        partition(isr=(1,)),
        PartitionTarget(isr=()),
        rules((2, 3)),
        Election.UNCLEAN,
        change(isr=(2,), leader=2, leader_recovery_state=1),
    ),
    "a clean one is preferred to it": (
        partition(isr=(1, 3)),
        PartitionTarget(isr=(3,)),
        rules((2, 3)),
        Election.UNCLEAN,
        change(isr=(3,), leader=3),
    ),
    "the preferred replica leads again": (
        partition(leader=2),
        UNCHANGED,
        rules((1, 2, 3)),
        Election.PREFERRED,
        change(leader=1),
    ),
    "not unless it is in sync": (
        partition(leader=2, isr=(2, 3)),
        UNCHANGED,
        rules((1, 2, 3)),
        Election.PREFERRED,
        None,
    ),
    "a reassignment ends when all new replicas are in sync": (
        partition(replicas=(1, 3, 2), isr=(1, 2), leader=2, removing_replicas=(2,), adding_replicas=(3,)),
        PartitionTarget(isr=(1, 2, 3)),
        rules((1, 2, 3)),
        Election.ONLINE,
        change(
            isr=(1, 3), leader=1, replicas=(1, 3), removing_replicas=(), adding_replicas=(), directories=(HOME, HOME)
        ),
    ),
    "the leader stays, and its epoch grows as one was dropped": (
        partition(replicas=(1, 3, 2), isr=(1, 2), removing_replicas=(2,), adding_replicas=(3,)),
        PartitionTarget(isr=(1, 2, 3)),
        rules((1, 2, 3)),
        Election.ONLINE,
        change(
            isr=(1, 3), leader=1, replicas=(1, 3), removing_replicas=(), adding_replicas=(), directories=(HOME, HOME)
        ),
    ),
    "the leader has recovered": (
        partition(isr=(1,), leader_recovery_state=1),
        PartitionTarget(isr=(1, 2), leader_recovery_state=0),
        rules((1, 2)),
        Election.ONLINE,
        change(isr=(1, 2), leader_recovery_state=0),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_partition_changes_as_in_kafka(case: str) -> None:
    before, target, around, election, expected = CASES[case]
    assert partition_change(TOPIC, 0, before, target, around, election) == expected


IDS = st.lists(st.integers(1, 5), unique=True, max_size=5).map(tuple)


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    replicas = draw(st.lists(st.integers(1, 5), unique=True, min_size=1, max_size=5).map(tuple))
    isr = draw(st.lists(st.sampled_from(replicas), unique=True).map(tuple))
    outside = [replica for replica in replicas if replica not in isr]
    elr = draw(st.lists(st.sampled_from(outside), unique=True).map(tuple)) if outside else ()
    leader = draw(st.sampled_from((*isr, -1)))
    known = draw(st.sampled_from([(), (draw(st.sampled_from(replicas)),)]))
    return partition(replicas=replicas, isr=isr, elr=elr, leader=leader, last_known_elr=known)


@given(
    before=partitions(),
    gone=IDS,
    active=IDS,
    min_isr=st.integers(1, 3),
    elr=st.booleans(),
    election=st.sampled_from(Election),
)
def test_every_partition_change_keeps_the_partition_invariants(
    before: Partition, gone: tuple[int, ...], active: tuple[int, ...], min_isr: int, elr: bool, election: Election
) -> None:
    """A leader is in sync and active; the ISR and the eligible replicas are disjoint parts of the replicas; deciding
    again changes nothing more, except that eligible replicas are dropped once no longer needed: Kafka names them before
    it elects, and the election may bring the ISR to its minimum.
    """
    active = tuple(broker for broker in active if broker not in gone)
    around = rules(active, min_isr=min_isr, elr=elr)
    target = PartitionTarget(isr=tuple(replica for replica in before.isr if replica not in gone))
    record = partition_change(TOPIC, 0, before, target, around, election)
    after = before if record is None else merge(before, record)
    if after.leader >= 0:
        assert after.leader in after.isr
        assert after.leader in active
    assert set(after.isr) <= set(after.replicas)
    if elr:
        assert set(after.elr) <= set(after.replicas)
        assert not set(after.elr) & set(after.isr)
    else:
        assert record is None or not after.elr
    clean = after.leader_recovery_state == 0
    if clean and after.leader >= 0 and record is not None and record.leader >= 0:
        assert after.leader in (*before.isr, *before.elr), "a leader that is elected without recovery had everything"
    again = PartitionTarget(isr=after.isr) if after.isr and not elr else UNCHANGED
    then = partition_change(TOPIC, 0, after, again, around, election)
    enough = elr and len(target.isr or ()) < min_isr <= len(after.isr)
    cleared = change(eligible_leader_replicas=()) if enough and after.elr else None
    assert then == cleared


def test_ids_come_in_the_order_of_javas_hash_set() -> None:
    """From a JVM: new HashSet<>(List.of(…)) of these ids prints in this order."""
    assert in_hash_order((103, 101, 102, 101)) == (101, 102, 103)
    assert in_hash_order((17, 3, 16, 1)) == (16, 17, 1, 3)
    assert in_hash_order(tuple(range(20, 0, -1))) == tuple(range(1, 21))


def test_a_removed_replica_stays_eligible_as_in_kafka() -> None:
    """`PartitionChangeBuilder.build` of 4.3.1 completes a reassignment first. Then `maybePopulateTargetElr` takes the
    old ELR and the old ISR without the new ISR and without unclean shutdowns, and compares nothing with the new
    replicas. So the ELR may name a broker that is no replica, until the ISR is large enough or that broker has an
    unclean shutdown. `data-cluster` seed 1000125 had such an ELR.
    """
    both = partition(replicas=(1, 2), isr=(1, 2))
    shrunk = partition_change(TOPIC, 0, both, PartitionTarget(removing=(2,)), rules((1, 2), min_isr=2, elr=True))
    assert shrunk == change(
        replicas=(1,), directories=(HOME,), isr=(1,), leader=1, eligible_leader_replicas=(2,), last_known_elr=None
    )
    alone = merge(both, shrunk)
    assert (alone.replicas, alone.isr, alone.elr) == ((1,), (1,), (2,))
    assert partition_change(TOPIC, 0, alone, UNCHANGED, rules((1, 2), min_isr=2, elr=True)) is None


def test_an_eligible_broker_without_a_replica_is_not_elected() -> None:
    """`electAnyLeader` of 4.3.1 looks through the replicas. `canElectLastKnownLeader` demands an empty ELR, so that the
    last known leader waits for such a broker, too.
    """
    alone = partition(replicas=(1,), isr=(1,), elr=(2,))
    around = rules((2,), min_isr=2, elr=True)
    gone = partition_change(TOPIC, 0, alone, PartitionTarget(isr=()), around)
    assert gone == change(isr=(), leader=-1, eligible_leader_replicas=(1, 2), last_known_elr=(1,))
    unclean = PartitionTarget(isr=(), unclean_shutdown=(1,))
    lost = partition_change(TOPIC, 0, merge(alone, gone), unclean, rules((1, 2), min_isr=2, elr=True))
    assert lost == change(eligible_leader_replicas=(2,))
    back = partition_change(TOPIC, 0, merge(merge(alone, gone), lost), UNCHANGED, rules((1, 2), min_isr=2, elr=True))
    assert back is None, "1 is the last known leader, active, and waits"
