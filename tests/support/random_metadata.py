"""Random histories of a cluster, as a controller might write them: every record fits what came before."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from metadata_log.image import MetadataDelta, MetadataImage, Partition
from metadata_log.records import metadata as records
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid

ELR = "eligible.leader.replicas.version"
BROKERS = range(1, 6)


def uuid(rng: Random) -> Uuid:
    return Uuid(rng.randbytes(16))


class RandomCluster:
    """Draws the next record from what the image holds, so that no record contradicts it."""

    def __init__(self, rng: Random, metadata_version: int = 30, *, elr: bool = True) -> None:
        self.rng = rng
        self.image = MetadataImage()
        self.log: list[Message] = []
        self.write(records.FeatureLevelRecord(name="metadata.version", feature_level=metadata_version))
        if elr:
            self.write(records.FeatureLevelRecord(name=ELR, feature_level=1))

    def write(self, record: Message) -> None:
        offset = len(self.log)
        delta = MetadataDelta(self.image)
        delta.replay(record, offset)
        self.image = delta.apply(OffsetAndEpoch(epoch=1, offset=offset + 1))
        self.log.append(record)

    def step(self) -> None:
        """Write one record, or one of a kind that needs none."""
        record = self.rng.choice(_KINDS)(self.rng, self.image)
        if record is not None:
            self.write(record)


def replicas(rng: Random) -> tuple[int, ...]:
    return tuple(rng.sample(BROKERS, rng.randint(1, 3)))


def some(rng: Random, ids: tuple[int, ...], least: int = 0) -> tuple[int, ...]:
    return tuple(rng.sample(ids, rng.randint(least, len(ids))))


def has_directories(image: MetadataImage) -> bool:
    return (image.features.metadata_version or 0) >= 17


def has_elr(image: MetadataImage) -> bool:
    return image.features.level(ELR) > 0


def _register(rng: Random, image: MetadataImage) -> Message:
    level = image.features.metadata_version or 0
    directories = tuple(uuid(rng) for _ in range(rng.randint(1, 3))) if has_directories(image) else ()
    return records.RegisterBrokerRecord(
        broker_id=rng.choice(BROKERS),
        broker_epoch=rng.randrange(1000),
        incarnation_id=uuid(rng),
        end_points=tuple(
            records.BrokerEndpoint(name=name, host="h", port=rng.randrange(65536), security_protocol=0)
            for name in rng.sample(["A", "B", "C"], 2)
        ),
        features=(records.BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30),),
        rack=rng.choice([None, "r1", "r2"]),
        fenced=rng.random() < 0.5,
        in_controlled_shutdown=rng.random() < 0.2,
        log_dirs=directories,
        cordoned_log_dirs=rng.choice([None, (), directories[:1]]) if level >= 30 else None,
    )


def _registration_change(rng: Random, image: MetadataImage) -> Message | None:
    if not image.brokers.by_id:
        return None
    broker = image.brokers.by_id[rng.choice(sorted(image.brokers.by_id))]
    match rng.randrange(5):
        case 0:
            return records.UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
        case 1:
            return records.FenceBrokerRecord(id=broker.id, epoch=broker.epoch)
        case 2:
            return records.UnfenceBrokerRecord(id=broker.id, epoch=broker.epoch)
        case _:
            return records.BrokerRegistrationChangeRecord(
                broker_id=broker.id,
                broker_epoch=broker.epoch,
                fenced=rng.choice([-1, 0, 1]),
                in_controlled_shutdown=rng.choice([0, 1]),
                log_dirs=rng.choice([(), broker.directories[:1]]),
            )


def _topic(rng: Random, image: MetadataImage) -> Message | None:
    name = rng.choice("abcdef")
    return None if name in image.topics else records.TopicRecord(name=name, topic_id=uuid(rng))


def _any_topic(rng: Random, image: MetadataImage) -> Uuid | None:
    return image.topics[rng.choice(list(image.topics))].id if len(image.topics) else None


def _remove_topic(rng: Random, image: MetadataImage) -> Message | None:
    topic_id = _any_topic(rng, image) if rng.random() < 0.2 else None
    return None if topic_id is None else records.RemoveTopicRecord(topic_id=topic_id)


def _partition(rng: Random, image: MetadataImage) -> Message | None:
    topic_id = _any_topic(rng, image)
    if topic_id is None:
        return None
    number = len(image.topics.by_id[topic_id].partitions)
    if number and rng.random() < 0.1:
        number = rng.randrange(number)
    ids = replicas(rng)
    return records.PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=ids,
        isr=some(rng, ids),
        leader=rng.choice([-1, *ids]),
        leader_recovery_state=rng.choice([0, 1]),
        leader_epoch=rng.randrange(5),
        partition_epoch=rng.randrange(5),
        directories=tuple(uuid(rng) for _ in ids) if has_directories(image) else (),
        eligible_leader_replicas=rng.choice([None, some(rng, ids)]) if has_elr(image) else None,
        last_known_elr=rng.choice([None, ids[:1]]) if has_elr(image) else None,
    )


def _partition_change(rng: Random, image: MetadataImage) -> Message | None:
    topic_id = _any_topic(rng, image)
    if topic_id is None or not image.topics.by_id[topic_id].partitions:
        return None
    partitions = image.topics.by_id[topic_id].partitions
    number = rng.randrange(len(partitions))
    old: Partition = partitions[number]
    moves = rng.random() < 0.3
    ids = replicas(rng) if moves else old.replicas
    return records.PartitionChangeRecord(
        partition_id=number,
        topic_id=topic_id,
        isr=rng.choice([None, some(rng, ids)]),
        leader=rng.choice([-2, -1, *ids]),
        replicas=ids if moves else None,
        adding_replicas=rng.choice([None, (), ids[:1]]),
        removing_replicas=rng.choice([None, (), ids[-1:]]),
        leader_recovery_state=rng.choice([-1, 0, 1]),
        directories=tuple(uuid(rng) for _ in ids) if moves and has_directories(image) else None,
        eligible_leader_replicas=rng.choice([None, some(rng, ids)]) if has_elr(image) else None,
        last_known_elr=rng.choice([None, (), ids[:1]]) if has_elr(image) else None,
    )


def _clear_elr(rng: Random, image: MetadataImage) -> Message | None:
    return records.ClearElrRecord(topic_name=rng.choice(["", *image.topics])) if rng.random() < 0.3 else None


def _config(rng: Random, image: MetadataImage) -> Message:
    kind, name = rng.choice([(2, rng.choice(["a", *image.topics])), (4, ""), (4, "1"), (16, "m"), (32, "g")])
    key, value = rng.choice(["k", "l"]), rng.choice([None, "v", "w", ""])
    return records.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


def _acl(rng: Random, image: MetadataImage) -> Message:
    if image.acls.by_id and rng.random() < 0.5:
        return records.RemoveAccessControlEntryRecord(id=rng.choice(sorted(image.acls.by_id)))
    return records.AccessControlEntryRecord(
        id=uuid(rng), resource_type=2, resource_name="a", pattern_type=3, principal="User:u", host="*", operation=3
    )


def _quota(rng: Random, image: MetadataImage) -> Message:
    kinds = rng.sample(["user", "client-id"], rng.randint(1, 2))
    entity = tuple(records.EntityData(entity_type=kind, entity_name=rng.choice([None, "x", "y"])) for kind in kinds)
    return records.ClientQuotaRecord(entity=entity, key=rng.choice("kl"), value=rng.random(), remove=rng.random() < 0.3)


def _scram(rng: Random, image: MetadataImage) -> Message:
    known = [(name, kind) for name in sorted(image.scram.by_user) for kind in sorted(image.scram.by_user[name])]
    if known and rng.random() < 0.5:
        name, mechanism = rng.choice(known)
        return records.RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)
    return records.UserScramCredentialRecord(
        name=rng.choice("xy"), mechanism=rng.choice([1, 2]), salt=rng.randbytes(4), iterations=4096
    )


def _token(rng: Random, image: MetadataImage) -> Message:
    token_id = rng.choice("tuv")
    if rng.random() < 0.3:
        return records.RemoveDelegationTokenRecord(token_id=token_id)
    return records.DelegationTokenRecord(
        owner="User:o",
        requester="User:r",
        renewers=("User:s",),
        expiration_timestamp=rng.randrange(9),
        token_id=token_id,
    )


def _producer_ids(rng: Random, image: MetadataImage) -> Message:
    return records.ProducerIdsRecord(
        next_producer_id=max(image.producer_ids.next_producer_id, 0) + rng.choice([1, 1000])
    )


def _controller(rng: Random, image: MetadataImage) -> Message:
    return records.RegisterControllerRecord(controller_id=rng.choice([1, 2]), incarnation_id=uuid(rng))


def _transaction(rng: Random, image: MetadataImage) -> Message:
    if image.transaction is None:
        return records.BeginTransactionRecord(name="t")
    return records.EndTransactionRecord() if rng.random() < 0.5 else records.AbortTransactionRecord(reason="r")


def _no_op(rng: Random, image: MetadataImage) -> Message:
    return rng.choice([records.NoOpRecord(), records.ZkMigrationStateRecord()])


_KINDS: list[Callable[[Random, MetadataImage], Message | None]] = [
    *([_partition] * 6),
    *([_partition_change] * 6),
    *([_topic] * 2),
    *([_register] * 2),
    *([_registration_change] * 2),
    *(_remove_topic, _clear_elr, _config, _acl, _quota, _scram, _token, _producer_ids, _controller),
    *(_transaction, _no_op),
]
