"""Who leads a partition next (Kafka: the elections of `PartitionChangeBuilder`; KIP-966)."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from msgspec import Struct

from metadata_log.image import Partition
from metadata_log.image.topics import NO_LEADER


class Election(Enum):
    """What an election is for (`PartitionChangeBuilder.Election`)."""

    PREFERRED = "preferred"
    """Move the leadership to the first replica, if that can lead; never away from a leader for any other reason."""
    ONLINE = "online"
    """Keep the leader, or find one that has every committed record."""
    UNCLEAN = "unclean"
    """As ONLINE, and if nobody has every committed record, take one that may lack some."""


class Elected(Struct, frozen=True):
    """The outcome: a replica, or `NO_LEADER`; `is_unclean` if committed records may be lost with it."""

    leader: int
    is_unclean: bool = False


class Candidates(Struct, frozen=True):
    """Among whom is elected: the replicas in order of preference, those in sync, and the eligible ones outside of it.

    `partition` is as it was before; `is_acceptable` tells whether a replica's broker is active and holds the partition
    in a directory that is online.
    """

    partition: Partition
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    is_acceptable: Callable[[Partition, int], bool]

    def is_valid(self, replica: int) -> bool:
        """Whether a replica can lead without losing a committed record.

        The eligible ones count only while nobody is in sync: then the high watermark cannot have passed them.
        """
        has_everything = replica in self.isr or (not self.isr and replica in self.elr)
        return has_everything and self.is_acceptable(self.partition, replica)


def elect(candidates: Candidates, election: Election, *, elr_enabled: bool) -> Elected:
    """The leader of a partition after its replicas have become `candidates`."""
    partition, is_acceptable = candidates.partition, candidates.is_acceptable
    preferred = candidates.replicas[:1] if election is Election.PREFERRED else ()
    for replica in (*preferred, partition.leader, *candidates.replicas):
        if candidates.is_valid(replica):
            return Elected(replica)
    last_known = partition.last_known_elr
    if (
        elr_enabled
        and not candidates.isr
        and not candidates.elr
        and len(last_known) == 1
        # A reassignment may have taken it away: Kafka's controller then fails, and resigns.
        and last_known[0] in candidates.replicas
        and is_acceptable(partition, last_known[0])
    ):
        return Elected(last_known[0], is_unclean=True)
    if election is Election.UNCLEAN:
        for replica in candidates.replicas:
            if is_acceptable(partition, replica):
                return Elected(replica, is_unclean=True)
    return Elected(NO_LEADER)
