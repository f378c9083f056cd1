"""A case for each check of what brokers and replicas believe of each other."""

from __future__ import annotations

from check_sites import Cases
from kraft.invariants.cluster_model import PartitionKey
from kraft.invariants.identities import IdentityLedger
from kraft.invariants.leaderships import Belief, LeadershipLedger, Remote
from kraft.quorum.values import ReplicaKey
from kraft.sim.workloads.partition_watch import PartitionWatch
from metadata_log.image import MetadataImage
from metadata_log.types import OffsetAndEpoch
from scripted_node import uuid

CASES = Cases()
KEY = (uuid(78), 0)
COMMITTED = {3: (1, 2), 4: (1, 2, 3)}
"""The ISR of each partition epoch."""


class Leader:
    """Broker 1, which leads in epoch 5 and partition epoch 3; brokers 2 and 3 follow."""

    def __init__(self) -> None:
        self.ledger = LeadershipLedger(self)
        self.ledger.began(1)
        self.believes()

    def isr_at(self, key: PartitionKey, partition_epoch: int) -> tuple[int, ...] | None:
        return COMMITTED.get(partition_epoch)

    def believes(
        self, leader_epoch: int = 5, partition_epoch: int = 3, isr: tuple[int, ...] = (1, 2), **remotes: Remote
    ) -> Belief:
        known = {2: Remote(), 3: Remote()} | {int(one.removeprefix("broker")): each for one, each in remotes.items()}
        belief = Belief(1, KEY, "t-0", leader_epoch, partition_epoch, isr, known, is_leader=True)
        self.ledger.believes(belief)
        return belief

    def fetched(self, broker_epoch: int, offset: int) -> None:
        """Broker 2 fetches, and the leader counts that."""
        self.ledger.fetched(1, 2, broker_epoch, [(KEY, offset)])
        self.believes(broker2=Remote(broker_epoch, offset))


@CASES(r"the leader epoch of t-0 on broker 1 falls from 5 to 4")
def a_leader_epoch_falls() -> None:
    Leader().believes(leader_epoch=4)


@CASES(r"the partition epoch of t-0 on broker 1 falls from 4 to 3")
def an_older_answer_of_the_controller_is_taken() -> None:
    leader = Leader()
    leader.believes(partition_epoch=4, isr=(1, 2, 3))
    leader.believes()


@CASES(r"broker 2 has never fetched with its epoch in Remote\(broker_epoch=12, end_offset=40\)")
def a_fetch_counts_for_another_incarnation() -> None:
    leader = Leader()
    leader.fetched(11, 40)
    leader.believes(broker2=Remote(12, 40))


@CASES(r"broker 2 has never fetched from the offset in Remote\(broker_epoch=11, end_offset=41\)")
def a_follower_counts_beyond_its_fetches() -> None:
    leader = Leader()
    leader.fetched(11, 40)
    leader.believes(broker2=Remote(11, 41))


@CASES(r"proposes an ISR of .* in leader epoch 4, and does not lead there")
def an_isr_is_proposed_in_a_former_epoch() -> None:
    Leader().ledger.proposed(1, KEY, 4, [(2, 11)])


@CASES(r"proposes broker 2 with epoch 12 for the ISR of t-0, and the last fetch of that broker had epoch 11")
def a_member_is_proposed_with_another_epoch_than_that_of_its_last_fetch() -> None:
    leader = Leader()
    leader.fetched(11, 40)
    leader.ledger.proposed(1, KEY, 5, [(2, 12)])


@CASES(r"broker 1 has 2 AlterPartition requests under way at once")
def two_proposals_are_in_flight() -> None:
    Leader().ledger.in_flight(1, 2)


@CASES(r"tells a follower of t-0 the high watermark 9 in leader epoch 5, after 10")
def a_told_watermark_falls() -> None:
    ledger = Leader().ledger
    ledger.answered(1, KEY, "t-0", 4, 12)
    ledger.answered(1, KEY, "t-0", 5, 10)
    ledger.answered(1, KEY, "t-0", 5, 9)


@CASES(r"the epoch of broker 1 falls from 11 to -1 in one life")
def a_broker_forgets_its_registration() -> None:
    ledger = Leader().ledger
    ledger.registered(1, -1)
    ledger.registered(1, 11)
    ledger.registered(1, -1)


@CASES(r"names voter 2 with directory .*, which that node has never had")
def a_voter_has_a_directory_that_no_node_had() -> None:
    ledger = IdentityLedger()
    ledger.started(ReplicaKey(2, uuid(1)))
    ledger.named(1, [ReplicaKey(2, uuid(1)), ReplicaKey(3)])
    ledger.named(1, [ReplicaKey(2, uuid(9))])


@CASES(r"the committed metadata of node 101 goes back from offset 7 to 5")
def the_metadata_of_a_broker_go_back() -> None:
    watch = PartitionWatch((101,))
    for offset in (5, 7, 5):
        watch.ledger.images[offset] = image = MetadataImage(end=OffsetAndEpoch(offset=offset, epoch=1))
        watch._check_image(101, image, is_published=True)
