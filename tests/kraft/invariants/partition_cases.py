"""A case for each check of brokers and partitions: records that end with the one that a controller must not write."""

from __future__ import annotations

from msgspec.structs import replace

from check_sites import Cases
from kraft.invariants import PartitionLedger
from metadata_log.image import MetadataImage
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch
from scripted_node import uuid

CASES = Cases()
TOPIC = uuid(77)
KEY = (TOPIC, 0)
VERSIONS: dict[type[Message], int] = {
    RegisterBrokerRecord: 3,
    BrokerRegistrationChangeRecord: 2,
    ClearElrRecord: 0,
    ConfigRecord: 0,
    FeatureLevelRecord: 0,
    TopicRecord: 0,
    PartitionRecord: 2,
    PartitionChangeRecord: 2,
}
FENCE, UNFENCE = 1, -1


class Records:
    """A ledger that has seen four active brokers and a topic without partitions."""

    def __init__(self) -> None:
        self.ledger = PartitionLedger()
        self._offset = 0
        for broker_id in (1, 2, 3, 4):
            self.registers(broker_id, broker_id)
            self.writes(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_id, fenced=UNFENCE))
        self.writes(TopicRecord(name="t", topic_id=TOPIC))

    def writes(self, *records: Message) -> None:
        """One committed batch."""
        values = [encode_record(one, VERSIONS[type(one)]) for one in records]
        end = self._offset + len(values)
        self.ledger.committed(values, self._offset, OffsetAndEpoch(epoch=1, offset=end))
        self._offset = end

    def registers(self, broker_id: int, epoch: int, incarnation: int = 0) -> None:
        """A broker registers, and is fenced."""
        incarnation_id = uuid(incarnation or 100 * broker_id)
        self.writes(RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch, incarnation_id=incarnation_id))

    def creates(
        self,
        replicas: tuple[int, ...] = (1, 2, 3),
        isr: tuple[int, ...] = (1, 2, 3),
        leader: int = 1,
        elr: tuple[int, ...] | None = None,
        adding: tuple[int, ...] = (),
        epochs: tuple[int, int] = (0, 0),
    ) -> Records:
        """Partition 0, with its leader epoch and its partition epoch."""
        self.writes(
            PartitionRecord(
                partition_id=0,
                topic_id=TOPIC,
                replicas=replicas,
                isr=isr,
                leader=leader,
                adding_replicas=adding,
                leader_epoch=epochs[0],
                partition_epoch=epochs[1],
                directories=(uuid(9),) * len(replicas),
                eligible_leader_replicas=elr,
            )
        )
        return self

    def changes(
        self,
        isr: tuple[int, ...] | None = None,
        leader: int = -2,
        elr: tuple[int, ...] | None = None,
        recovery: int = -1,
        last_known: tuple[int, ...] | None = None,
    ) -> None:
        """A change of partition 0."""
        self.writes(
            PartitionChangeRecord(
                partition_id=0,
                topic_id=TOPIC,
                isr=isr,
                leader=leader,
                eligible_leader_replicas=elr,
                leader_recovery_state=recovery,
                last_known_elr=last_known,
            )
        )

    def fences(self, broker_id: int) -> None:
        """A broker is fenced."""
        self.writes(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_id, fenced=FENCE))


# A new partition, and the form of any partition


@CASES("a partition begins without a leader; offset 9")
def a_partition_begins_without_a_leader() -> None:
    Records().creates(isr=(1,), leader=-1)


@CASES("a partition begins with broker 3 in sync, which is not active")
def a_partition_begins_with_a_fenced_broker_in_sync() -> None:
    records = Records()
    records.fences(3)
    records.creates()


@CASES("a broker is named twice")
def a_broker_is_two_replicas() -> None:
    Records().creates(replicas=(1, 1))


@CASES("the ISR is not among the replicas")
def the_isr_is_not_among_the_replicas() -> None:
    Records().creates(replicas=(1, 2))


@CASES("a broker is in the ISR, and eligible outside of it")
def a_broker_is_in_the_isr_and_in_the_elr() -> None:
    Records().creates(elr=(2,))


@CASES("not every replica has a directory")
def a_replica_has_no_directory() -> None:
    """The replay refuses such a record, so the check sees a partition that the test has changed."""
    ledger = Records().creates().ledger
    partition = ledger._model.partition(KEY)
    ledger._check_new(replace(partition, directories=()), "a new partition")


@CASES("an added or removed replica is not a replica")
def an_added_replica_is_no_replica() -> None:
    Records().creates(adding=(4,))


# Changes


def checked_change(leader_epoch: int, partition_epoch: int, leader: int = 1) -> None:
    """Check a change from epochs 5 and 5 to these. The replay of records never comes to such epochs, so the partitions
    are those of two logs.
    """
    before = Records().creates(epochs=(5, 5))
    after = Records().creates(epochs=(leader_epoch, partition_epoch), leader=leader)
    old, new = before.ledger._model.partition(KEY), after.ledger._model.partition(KEY)
    before.ledger._check_change(KEY, old, new, "a change")


@CASES("the partition epoch does not rise by one")
def the_partition_epoch_stays() -> None:
    checked_change(5, 5)


@CASES("the leader epoch falls")
def the_leader_epoch_falls() -> None:
    checked_change(4, 6)


@CASES("the leader epoch does not rise, so former replicas are not fenced")
def the_leader_epoch_stays_with_another_leader() -> None:
    checked_change(5, 6, leader=2)


@CASES("broker 3 enters the ISR and is not active")
def a_fenced_broker_enters_the_isr() -> None:
    records = Records().creates(isr=(1, 2))
    records.fences(3)
    records.changes(isr=(1, 2, 3))


@CASES("broker 3 is elected and is not active")
def a_fenced_broker_is_elected() -> None:
    records = Records().creates()
    records.fences(3)
    records.changes(leader=3)


@CASES(r"broker 2 is elected as if it had everything, as only \[1\] have")
def a_broker_without_all_records_is_elected() -> None:
    records = Records().creates()
    records.changes(isr=(1,))
    records.changes(elr=(2,))
    records.changes(isr=(2,), leader=2, elr=())


# Brokers


@CASES("one incarnation of a broker has two epochs, 4 before")
def one_incarnation_registers_in_two_epochs() -> None:
    Records().registers(4, 9, incarnation=400)


@CASES("the broker epoch does not rise from 4")
def a_broker_epoch_does_not_rise() -> None:
    Records().registers(4, 4, incarnation=401)


# The nodes


@CASES("node 1 has other metadata at offset 10: topics: ")
def a_node_has_other_metadata() -> None:
    records, other = Records().creates(), Records().creates(isr=(1, 2))
    image: MetadataImage = other.ledger.image
    records.ledger.check_node(1, image, is_published=True)
