"""The input of the assignors: a group, its members, and the topics that they want."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from metadata_log.types import Uuid

Partitions = tuple[int, ...]
PartitionsByTopic = Mapping[Uuid, Partitions]


class AssignmentMember(Struct, frozen=True):
    """A member of a group: what it wants, and what it should have had until now."""

    member_id: str
    instance_id: str | None
    topics: Sequence[Uuid]
    """The topics that it wants and that exist, each once."""
    target: PartitionsByTopic


class GroupSpec(Struct, frozen=True):
    """The input of an assignor for one group (Kafka: `GroupSpec`, `SubscribedTopicDescriber`)."""

    members: Sequence[AssignmentMember]
    """Their order decides who gets more, where somebody must."""
    counts: Mapping[Uuid, int]
    """How many partitions each topic has that some member wants."""
    homogeneous: bool
    """Whether all members want the same topics."""
