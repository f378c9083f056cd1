"""Reads where the logs of brokers' partitions end, for the preflight of an unclean election. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from kraft.operate.doctor.checks.partitions import named, partitions
from kraft.operate.doctor.facts.node import Facts, Replica, ReplicaEnd
from kraft.operate.recover.inventory import read_partition
from metadata_log.disk import Disk
from metadata_log.errors import MetadataLogError
from metadata_log.image.topics import NO_LEADER
from metadata_log.log.epochs import FILE_NAME as EPOCHS_FILE
from metadata_log.log.epochs import EpochHistory, parse_epochs
from metadata_log.types import Uuid


def with_replica_ends(disk: Disk, facts: Facts) -> Facts:
    """The facts with the ends of the replicas of all partitions without a leader.

    Only directories of this host are read: a bundle has no segments. A damaged log has no known end.
    """
    if facts.image is None:
        return facts
    wanted = {named(one): one[0].id for one in partitions(facts.image) if one[2].leader == NO_LEADER}
    ends: dict[str, tuple[ReplicaEnd, ...]] = {}
    for broker, replica in _replicas(facts, wanted):
        end = _read(disk, broker, replica)
        if end is not None:
            ends[replica.name] = (*ends.get(replica.name, ()), end)
    return replace(facts, replica_ends=ends)


def _replicas(facts: Facts, wanted: dict[str, Uuid]) -> Iterator[tuple[int, Replica]]:
    for node in facts.nodes:
        if node.id is None or node.host:
            continue
        for directory in node.directories:
            for replica in directory.replicas:
                is_same = replica.topic_id is not None and replica.topic_id == wanted.get(replica.name)
                if is_same and not replica.suffix:
                    yield node.id, replica


def _read(disk: Disk, broker: int, replica: Replica) -> ReplicaEnd | None:
    where = f"{replica.path}/{EPOCHS_FILE}"
    try:
        epochs = parse_epochs(disk.read(where), where=where) if disk.exists(where) else EpochHistory()
        files = read_partition(disk, replica.path)
    except (MetadataLogError, OSError):
        return None
    return None if files.damage else ReplicaEnd(broker=broker, epochs=epochs, log_end=files.log_end)
