"""The invariants of brokers and partitions in every committed record, from any controller (Kafka: the invariants that
`ReplicationControlManager` and `PartitionChangeBuilder` keep; KIP-497, KIP-903, KIP-966).

The ledger replays the committed log record by record in a small model of its own, and checks each change there. The
ledger also replays the log in images, as the nodes do, and compares the images with the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from kraft.invariants.cluster_model import NO_LEADER, BrokerModel, ClusterModel, PartitionKey, PartitionModel
from kraft.invariants.violation import InvariantViolated
from metadata_log.errors import UnsupportedVersion
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.records.frame import decode_record
from metadata_log.records.metadata import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
)
from metadata_log.releases import unknown_record_text
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid

RECOVERING: Final = 1
_FENCE: Final = 1
_TOPIC: Final = 2
_MIN_ISR: Final = "min.insync.replicas"


class PartitionLedger:
    """The committed metadata, and for each partition the replicas that certainly have all acknowledged records.

    Every method raises `InvariantViolated`.
    """

    def __init__(self, *, knows_requests: bool = True) -> None:
        """Begin with empty metadata.

        Args:
            knows_requests: Whether the caller observes the requests to the controllers. Otherwise the ledger regards
                every unclean election as requested.
        """
        self._knows_requests = knows_requests
        self._model = ClusterModel()
        self.image = MetadataImage()
        self.images: dict[int, MetadataImage] = {0: self.image}
        """The metadata after each committed batch of data, by the offset after the batch."""
        self.changes = 0
        """The number of partition changes checked."""
        self.clean_starts: dict[Uuid, bool] = {}
        """Whether the broker shut down cleanly before this incarnation, by incarnation id."""
        self.forced: set[PartitionKey] = set()
        """The partitions with a requested unclean election."""
        self.registrations: dict[int, tuple[int, int]] = {}
        """The epoch of each broker's last registration, and the offset of that record, by broker id."""
        self.unclean: dict[PartitionKey, int] = {}
        """The leader epoch of the last election of a replica that may lack acknowledged records."""
        self.isrs: dict[PartitionKey, dict[int, tuple[int, ...]]] = {}
        """The ISR of every partition epoch so far."""
        self._complete: dict[PartitionKey, frozenset[int]] = {}
        self._taken_away: dict[PartitionKey, frozenset[int]] = {}
        """The replicas that a reassignment removed from a partition and left in the ELR. Kafka 4.3.1 does not remove
        such a replica from the ELR. Added again, the replica may lead with only the records that it had before.
        """
        self._resized: dict[str, None] = {}
        """The topics of which a batch changes min.insync.replicas; the empty name is that of all topics."""

    # The log

    def begin(self, image: MetadataImage) -> None:
        """Begin with the image of a snapshot in place of empty metadata. Every replica in an ISR or an ELR then counts
        as complete.
        """
        self.image = image
        self.images = {image.end.offset: image}
        self._model.begin(image)
        for key, _, partition in self._model.partitions():
            self._complete[key] = frozenset(partition.isr).union(partition.elr)

    def committed(self, values: Iterable[bytes], base_offset: int, end: OffsetAndEpoch) -> None:
        """Replay and check the values of the next committed batch of data. `end` is the offset after the last record,
        and the epoch of the batch. A record may change a partition of the image only as it changes the model. Raises
        `UnsupportedVersion` for a record of a later release: what it changes is not known.
        """
        batch = MetadataDelta(self.image)
        self._resized = {}
        changed: dict[PartitionKey, None] = {}
        for offset, value in enumerate(values, base_offset):
            framed = decode_record(value, where=f"offset {offset}")
            record = framed.record
            if record is None:
                text = unknown_record_text(framed.type, framed.version, batch.features.metadata_version)
                raise UnsupportedVersion(text, where=f"offset {offset}")
            batch.replay(record, offset)
            self._replay(record, offset)
            if isinstance(record, PartitionRecord | PartitionChangeRecord):
                changed[record.topic_id, record.partition_id] = None
        self.image = self.images[end.offset] = batch.apply(end)
        for key in changed:
            if self._model.has(key):
                _raise_if(self._model.partition_difference(self.image, key), end)

    def concluded(self) -> None:
        """Check that the image of all committed records equals the model."""
        _raise_if(self._model.difference(self.image), self.image.end)

    def _replay(self, record: Message, offset: int) -> None:
        model, where = self._model, f"offset {offset}: {record}"
        match record:
            case PartitionRecord():
                model.replay(record)
                key = (record.topic_id, record.partition_id)
                self._check_new(model.partition(key), where)
                self._complete[key] = frozenset(record.isr)
                self._note_isr(key, model.partition(key))
            case PartitionChangeRecord():
                self.changes += 1
                key = (record.topic_id, record.partition_id)
                old = model.partition(key)
                model.replay(record)
                self._check_change(key, old, model.partition(key), where)
                self._note_isr(key, model.partition(key))
            case RegisterBrokerRecord():
                self.registrations[record.broker_id] = (record.broker_epoch, offset)
                former = model.brokers.get(record.broker_id)
                model.replay(record)
                self._check_registration(record, former, where)
            case BrokerRegistrationChangeRecord() if record.fenced == _FENCE:
                model.replay(record)
                self._check_fenced(record.broker_id, where)
            case RemoveTopicRecord():
                model.replay(record)
                self._complete = {key: ids for key, ids in self._complete.items() if key[0] != record.topic_id}
            case ConfigRecord() | ClearElrRecord():
                self._check_clearing(record, where)
                model.replay(record)
                for key, _, partition in model.partitions():
                    self._advance(key, partition)
                    self._note_isr(key, partition)
            case _:
                model.replay(record)

    def _check_clearing(self, record: ConfigRecord | ClearElrRecord, where: str) -> None:
        """Only another minimum takes from replicas outside of the ISR that they may lead (KIP-966)."""
        match record:
            case ConfigRecord(resource_type=kind, resource_name=name) if record.name == _MIN_ISR:
                self._resized[name if kind == _TOPIC else ""] = None
            case ClearElrRecord(topic_name=name) if name not in self._resized:
                raise InvariantViolated(
                    f"nobody changes {_MIN_ISR} of {name or 'all topics'}, and the ELR is emptied; {where}"
                )

    def _note_isr(self, key: PartitionKey, partition: PartitionModel) -> None:
        self.isrs.setdefault(key, {})[partition.partition_epoch] = partition.isr

    # Partitions

    def _check_new(self, partition: PartitionModel, where: str) -> None:
        _check_shape(partition, where)
        if partition.leader == NO_LEADER:
            raise InvariantViolated(f"a partition begins without a leader; {where}")
        for one in partition.isr:
            if not self._is_active(one):
                raise InvariantViolated(f"a partition begins with broker {one} in sync, which is not active; {where}")

    def _check_change(self, key: PartitionKey, old: PartitionModel, new: PartitionModel, where: str) -> None:
        where = f"{where}, {old} -> {new}"
        _check_shape(new, where)
        if new.partition_epoch != old.partition_epoch + 1:
            raise InvariantViolated(f"the partition epoch does not rise by one; {where}")
        if new.leader_epoch < old.leader_epoch:
            raise InvariantViolated(f"the leader epoch falls; {where}")
        has_dropped = any(one not in new.replicas for one in old.replicas)
        if (new.leader != old.leader or has_dropped) and new.leader_epoch == old.leader_epoch:
            raise InvariantViolated(f"the leader epoch does not rise, so former replicas are not fenced; {where}")
        if self._is_unclean_cancellation(key, old, new):
            self._complete[key] = frozenset(new.isr)
            self.unclean[key] = new.leader_epoch
            return
        for one in new.isr:
            if one not in old.isr and not self._may_enter(one, old):
                raise InvariantViolated(f"broker {one} enters the ISR and is not active; {where}")
        is_election = new.leader not in (NO_LEADER, old.leader)
        if is_election and not self._may_enter(new.leader, old):
            raise InvariantViolated(f"broker {new.leader} is elected and is not active; {where}")
        is_unclean = is_election and _is_unclean(old, new)
        if is_unclean or (is_election and new.leader in self._taken_away.get(key, ())):
            self.unclean[key] = new.leader_epoch
        if is_unclean:
            self._check_unclean(key, old, new, where)
            self._complete[key] = frozenset((new.leader,))
        elif is_election and new.leader_recovery_state != RECOVERING and not self._has_everything(key, old, new):
            raise InvariantViolated(
                f"broker {new.leader} is elected as if it had everything, as only"
                f" {sorted(self._complete[key])} have; {where}"
            )
        self._check_last_known(old, new, where)
        self._complete[key] = self._complete[key].union(new.isr)
        gone = set(new.elr).difference(new.replicas).union(self._taken_away.get(key, ()))
        self._taken_away[key] = frozenset(gone.intersection(new.elr))
        self._advance(key, new)

    def _check_last_known(self, old: PartitionModel, new: PartitionModel, where: str) -> None:
        """A partition that loses its leader keeps its name, and that replica leads again if nobody else may (KIP-966).
        Only a new minimum takes that away, and then the partition waits for an operator.
        """
        wanted = old.last_known_elr or (() if old.leader == NO_LEADER else (old.leader,))
        has_elr = self._model.level("eligible.leader.replicas.version") > 0
        if new.leader == NO_LEADER and has_elr and new.last_known_elr != wanted:
            raise InvariantViolated(f"the last known leader is {new.last_known_elr}, and not {wanted}; {where}")

    def _check_unclean(self, key: PartitionKey, old: PartitionModel, new: PartitionModel, where: str) -> None:
        """A replica that may lack records leads only if unclean election is enabled or requested, or if the replica is
        the last known leader (KIP-966).
        """
        if new.leader_recovery_state != RECOVERING:
            raise InvariantViolated(f"broker {new.leader} is elected from outside, as if it were in sync; {where}")
        is_asked_for = key in self.forced or not self._knows_requests
        is_wanted = is_asked_for or self._model.setting(key, "unclean.leader.election.enable") == "true"
        # The last replica in the ELR may be the broker that registers now and has lost its records.
        is_last_known = not old.isr and len(old.elr) <= 1 and not new.elr and old.last_known_elr == (new.leader,)
        if not is_wanted and not is_last_known:
            raise InvariantViolated(f"broker {new.leader} is elected uncleanly without a request; {where}")

    def _is_unclean_cancellation(self, key: PartitionKey, old: PartitionModel, new: PartitionModel) -> bool:
        """Whether a reassignment is cancelled while only the added replicas are in sync. If unclean elections are
        enabled, the first of the remaining replicas then becomes the ISR (`PartitionReassignmentRevert`).
        """
        has_ended = old.is_reassigning and not new.is_reassigning
        is_taken_back = has_ended and new.isr == new.replicas[:1] and not set(old.adding_replicas) & set(new.replicas)
        has_lost_all = set(old.isr) <= set(old.adding_replicas)
        return is_taken_back and has_lost_all and self._model.setting(key, "unclean.leader.election.enable") == "true"

    def _has_everything(self, key: PartitionKey, old: PartitionModel, new: PartitionModel) -> bool:
        is_left_over = new.leader in self._taken_away.get(key, ())
        return new.leader in self._complete[key] or _is_completion(old, new) or is_left_over

    def _advance(self, key: PartitionKey, partition: PartitionModel) -> None:
        """While the ISR has at least min.insync.replicas members, replicas outside of it may lack acknowledged records.
        A leader limits the minimum by the replicas of its own partition (`Partition.effectiveMinIsr`). A controller
        limits the minimum by the replicas of the first partition, which may be fewer.
        """
        wanted = int(self._model.setting(key, "min.insync.replicas") or 1)
        min_isr = min(wanted, len(partition.replicas))
        has_elr = self._model.level("eligible.leader.replicas.version") > 0
        if partition.leader != NO_LEADER and (len(partition.isr) >= min_isr or not has_elr):
            self._complete[key] = frozenset(partition.isr)

    # Brokers

    def _check_registration(self, record: RegisterBrokerRecord, old: BrokerModel | None, where: str) -> None:
        broker_id = record.broker_id
        if old is not None and old.incarnation_id == record.incarnation_id:
            if record.broker_epoch != old.epoch:
                raise InvariantViolated(f"one incarnation of a broker has two epochs, {old.epoch} before; {where}")
            return
        if old is not None and record.broker_epoch <= old.epoch:
            raise InvariantViolated(f"the broker epoch does not rise from {old.epoch}; {where}")
        self._check_fenced(broker_id, where)
        if self.clean_starts.get(record.incarnation_id, True):
            return
        for key, name, partition in self._model.partitions():
            if broker_id in partition.isr or broker_id in partition.elr:
                raise InvariantViolated(
                    f"broker {broker_id} may have lost records, and still counts for {name}; {where}"
                )
            self._complete[key] -= {broker_id}

    def _check_fenced(self, broker_id: int, where: str) -> None:
        for _, name, partition in self._model.partitions():
            if partition.leader == broker_id:
                raise InvariantViolated(f"broker {broker_id} is fenced and leads {name}; {where}")

    def _is_active(self, broker_id: int) -> bool:
        broker = self._model.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def _may_enter(self, broker_id: int, partition: PartitionModel) -> bool:
        """Whether an active broker may enter the ISR. For a partition without a leader, any unfenced broker may, as in
        Kafka: a late heartbeat may unfence a broker that was fenced during its controlled shutdown.
        """
        broker = self._model.brokers.get(broker_id)
        is_back = broker is not None and not broker.fenced and partition.leader == NO_LEADER
        return self._is_active(broker_id) or is_back

    # The nodes

    def partition_of(self, key: PartitionKey) -> PartitionModel | None:
        """A partition by the committed records; None if the topic is deleted, or the partition never existed."""
        return self._model.partition(key) if self._model.has(key) else None

    def min_isr_of(self, key: PartitionKey) -> int:
        """The effective min.insync.replicas of a partition that exists."""
        wanted = int(self._model.setting(key, "min.insync.replicas") or 1)
        return min(wanted, len(self._model.partition(key).replicas))

    def check_node(self, node_id: int, image: MetadataImage, *, is_published: bool) -> None:
        """Check that the committed metadata of a node equals that of all other nodes at the same offset. A published
        image excludes an open transaction (KIP-868).
        """
        expected = self.images.get(image.end.offset)
        if expected is None:
            return
        if is_published:
            expected = expected.stable
        # The offset of a feature change depends on how the leader grouped records into batches.
        if replace(image, features_offset=expected.features_offset) != expected:
            raise InvariantViolated(
                f"node {node_id} has other metadata at offset {image.end.offset}: {_difference(image, expected)}"
            )


def _check_shape(partition: PartitionModel, where: str) -> None:
    replicas, isr = partition.replicas, partition.isr
    if len(set(replicas)) != len(replicas) or len(set(isr)) != len(isr):
        raise InvariantViolated(f"a broker is named twice; {where}")
    if not set(isr) <= set(replicas):
        raise InvariantViolated(f"the ISR is not among the replicas; {where}")
    if partition.leader != NO_LEADER and partition.leader not in isr:
        raise InvariantViolated(f"the leader is not in the ISR; {where}")
    if set(isr) & set(partition.elr):
        raise InvariantViolated(f"a broker is in the ISR, and eligible outside of it; {where}")
    if len(partition.directories) != len(replicas):
        raise InvariantViolated(f"not every replica has a directory; {where}")
    if not set(partition.adding_replicas) <= set(replicas) or not set(partition.removing_replicas) <= set(replicas):
        raise InvariantViolated(f"an added or removed replica is not a replica; {where}")


def _is_unclean(old: PartitionModel, new: PartitionModel) -> bool:
    return new.leader not in old.isr and new.leader not in old.elr and not _is_completion(old, new)


def _is_completion(old: PartitionModel, new: PartitionModel) -> bool:
    """Whether this change completes a reassignment, and so may elect a replica that has just entered the ISR."""
    has_ended = old.is_reassigning and not new.is_reassigning
    return has_ended and old.leader != NO_LEADER and new.leader not in old.removing_replicas


def _difference(one: MetadataImage, other: MetadataImage) -> str:
    families = ((name, getattr(one, name), getattr(other, name)) for name in one.__struct_fields__)
    return ", ".join(f"{name}: {mine}, not {theirs}"[:1500] for name, mine, theirs in families if mine != theirs)


def _raise_if(difference: str, end: OffsetAndEpoch) -> None:
    if difference:
        raise InvariantViolated(
            f"the image of the log at offset {end.offset} is not what the records say: {difference}"
        )
