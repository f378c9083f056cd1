"""Members that leave or are fenced (Kafka: `GroupMetadataManager.consumerGroupFenceMembers`)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from msgspec import Struct

from kraft.coordinators.groups.consumer.draft import Draft
from kraft.coordinators.groups.consumer.hashing import TopicHashes
from kraft.coordinators.groups.consumer.member import Member
from kraft.coordinators.runtime.timers import Timers
from kraft.supported_features import GROUPS_OF_4_4
from metadata_log.image import MetadataImage


class Watch(Enum):
    """The kinds of timers of a group or a member: what each waits for."""

    SESSION = "session"
    """The next heartbeat."""
    REBALANCE = "rebalance"
    """A member gives up what it must."""
    JOIN = "join"
    """A member of the classic protocol joins again."""
    SYNC = "sync"
    """A member of the classic protocol fetches its assignment."""
    REGEX = "regex"
    """The next portion of the work on the regular expressions of a group."""


class ConsumerTimer(Struct, frozen=True, gc=False):
    """The key of a timer of a consumer group."""

    watch: Watch
    group_id: str
    member_id: str = ""


OF_A_MEMBER = (Watch.SESSION, Watch.REBALANCE, Watch.JOIN, Watch.SYNC)


def cancel_timers(timers: Timers, group_id: str, member_id: str) -> None:
    """Cancel all timers of a member that is gone."""
    for watch in OF_A_MEMBER:
        timers.cancel(ConsumerTimer(watch, group_id, member_id))


def fence(draft: Draft, members: Iterable[Member], image: MetadataImage, hashes: TopicHashes, timers: Timers) -> None:
    """Remove members; the next heartbeat of another one assigns what they had."""
    gone = list(members)
    for member in gone:
        draft.end_member(member.member_id)
    for regex in sorted({one.regex for one in gone if one.regex} - set(draft.group.regexes)):
        draft.end_regex(regex)
    after = draft.group
    draft.epoch(after.epoch + 1, hashes.without_steps(image, after.topics, after.metadata_hash))
    if not draft.group.members and (image.features.metadata_version or 0) >= GROUPS_OF_4_4:
        # An empty group has what it should have (KAFKA-19846); time 0 lets the next member be assigned at once.
        draft.target_epoch(draft.group.epoch, 0)
    for member in gone:
        cancel_timers(timers, draft.group.group_id, member.member_id)
