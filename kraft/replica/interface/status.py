"""The report of a replica about itself."""

from __future__ import annotations

from msgspec import Struct

from kraft.quorum.values import LeaderAndEpoch
from kraft.quorum.voters import VoterSet
from metadata_log.types import Uuid


class ReplicaStatus(Struct, frozen=True, kw_only=True):
    """A replica at one moment. Offsets are exclusive ends; the high watermark is -1 while it is not known."""

    node_id: int
    directory_id: Uuid
    cluster_id: str
    state: str
    leader: LeaderAndEpoch
    voters: VoterSet
    """The voters in force, committed or not."""
    is_voter: bool
    high_watermark: int
    log_start_offset: int
    log_end_offset: int
    flushed_offset: int
    applied_offset: int
