"""Selects the next leader of a partition (Kafka: the elections of `PartitionChangeBuilder`; KIP-966)."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from msgspec import Struct

from metadata_log.image import Partition
from metadata_log.image.topics import NO_LEADER


class Election(Enum):
    """The kind of an election (`PartitionChangeBuilder.Election`)."""

    PREFERRED = "preferred"
    """Elect the first replica, if eligible. No other reason replaces the current leader."""
    ONLINE = "online"
    """Keep the leader, or elect a replica that has all committed records."""
    UNCLEAN = "unclean"
    """As ONLINE; if no eligible replica has all committed records, elect one that may lack some."""


class Elected(Struct, frozen=True):
    """The outcome: a replica, or `NO_LEADER`; `is_unclean` if the election may lose committed records."""

    leader: int
    is_unclean: bool = False


class Candidates(Struct, frozen=True):
    """The candidates of an election: the replicas in order of preference, the ISR and the ELR.

    `partition` is the state before the change. `is_acceptable` states whether a replica's broker is active and has the
    partition in an online directory.
    """

    partition: Partition
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    is_acceptable: Callable[[Partition, int], bool]

    def is_valid(self, replica: int) -> bool:
        """Whether a replica can lead without loss of committed records.

        The ELR counts only while the ISR is empty: the high watermark cannot have advanced since.
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
        # A reassignment may have removed the replica. Kafka's controller then fails and resigns.
        and last_known[0] in candidates.replicas
        and is_acceptable(partition, last_known[0])
    ):
        return Elected(last_known[0], is_unclean=True)
    if election is Election.UNCLEAN:
        for replica in candidates.replicas:
            if is_acceptable(partition, replica):
                return Elected(replica, is_unclean=True)
    return Elected(NO_LEADER)
