"""The share groups of a partition: heartbeats and timers (Kafka: `GroupMetadataManager.shareGroupHeartbeat`)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.access.caller import host_of_peer
from kraft.access.errors import ApiError
from kraft.config.group_settings import ShareGroupConfig
from kraft.coordinators.groups.assignors import PartitionsByTopic
from kraft.coordinators.groups.consumer.groups import is_blank, of_group
from kraft.coordinators.groups.consumer.hashing import TopicHashes
from kraft.coordinators.groups.consumer.targets import ids_of
from kraft.coordinators.groups.shares import states
from kraft.coordinators.groups.shares.assignor import SharingMember, assigning
from kraft.coordinators.groups.shares.draft import ShareDraft
from kraft.coordinators.groups.shares.group import LEAVING, NamedPartitions, ShareGroup, ShareMember
from kraft.coordinators.groups.shares.states import Beginning, Partitions
from kraft.coordinators.runtime.encoding import encoding
from kraft.coordinators.runtime.shard import NOTHING, Context, CoordinatorResult
from kraft.coordinators.runtime.weights import text_bytes
from kraft.handling.coordinators import Counted
from kraft.handling.orders import in_hash_map_order
from kraft.limits import HEARTBEAT_PARTITIONS, HEARTBEAT_TOPICS, LOOKS_NOTED, LOOKS_NOTED_BYTES, NAMED_TOPICS
from kraft.supported_features import GROUPS_OF_4_4
from kraft.wire import WireRequest
from metadata_log.image import MetadataImage, TopicsImage
from metadata_log.serde.codec import finished
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

LONGEST_MEMBER_ID: Final = 36
"""The characters of a member id, which the member itself makes."""
Begin = Callable[[str, int, list[Beginning], Partitions, int], None]
"""Asks for states of a group, at an epoch, at a time in ms; once as a list, and once by topic."""


class ShareWatch(Enum):
    """The kinds of timers of share groups."""

    SESSION = "session"
    """The next heartbeat of a member."""
    DELETION = "deletion"
    """The next groups are looked at for states of deleted topics."""


class ShareTimer(Struct, frozen=True, gc=False):
    """The key of a timer of a share group."""

    watch: ShareWatch
    group_id: str = ""
    member_id: str = ""


class _Settled(Struct, frozen=True):
    """The parts of a group, and the topics, by which nothing was left to do at the last look."""

    names: object
    targets: object
    states: object
    metadata_hash: int
    topics: TopicsImage


class ShareGroups:
    """The share groups of one partition. What the log does not have of them is here.

    Args:
        settings: The settings.
        counted: What the groups of the broker have done.
        begin: Asks the share coordinators for states; their answers come back as operations on this partition.
        is_full: Whether the groups of the broker take as much memory as they may.
    """

    def __init__(
        self,
        settings: ShareGroupConfig,
        counted: Counted,
        begin: Begin,
        is_full: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._counted = counted
        self._begin = begin
        self._is_full = is_full
        self.hashes = TopicHashes()
        self._settled: dict[str, _Settled] = {}
        self._settled_bytes = 0
        self._asked_ms: dict[str, int] = {}
        """When the last record of states was written for a group that waits for some."""

    # ------------------------------------------------------------------------------------------------------- heartbeats

    def heartbeat(
        self, group: ShareGroup | None, request: WireRequest[ShareGroupHeartbeatRequest], context: Context
    ) -> CoordinatorResult:
        """ShareGroupHeartbeat, at once; see `heartbeating`."""
        return finished(self.heartbeating(group, request, context))

    def is_much(self, group: ShareGroup | None, message: ShareGroupHeartbeatRequest, image: MetadataImage) -> bool:
        """Whether a heartbeat has to do with very many topics or partitions, and may change something."""
        if message.member_epoch < 0:
            return False
        names = set(message.subscribed_topic_names or ())
        if group is not None:
            member = group.members.get(message.member_id)
            if not names and member is not None and self._is_settled(group, image) and _is_reconciled(group, member):
                return False
            names.update(group.names)
        if len(names) >= HEARTBEAT_TOPICS:
            return True
        topics = map(image.topics.get, names)
        return sum([len(topic.partitions) for topic in topics if topic is not None]) >= HEARTBEAT_PARTITIONS

    def heartbeating(
        self, group: ShareGroup | None, request: WireRequest[ShareGroupHeartbeatRequest], context: Context
    ) -> Generator[None, None, CoordinatorResult]:
        """ShareGroupHeartbeat in portions, of which only the last one has effects.

        Args:
            group: The group; None if there is none.
            request: The request, which `check` has passed.
            context: What an operation may look at.

        Raises:
            ApiError: The request is refused.
        """
        message, group_id = request.message, request.message.group_id
        if group is None:
            if message.member_epoch != 0:
                raise ApiError(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            group = ShareGroup(group_id)
        if message.member_epoch == LEAVING:
            return self._leave(group, message.member_id, context)
        self._check_room(group, message.member_id)
        member = _known(group, message)
        updated = _merged(member, request)
        if len(updated.names) > len(member.names) and self._is_full():
            raise ApiError(Error.GROUP_MAX_SIZE_REACHED, "The groups of the broker take as much memory as they may.")
        draft, image = ShareDraft(group), context.image
        if updated != member or message.member_id not in group.members:
            draft.subscription(updated)
        is_changed = updated.names != member.names
        lacking: dict[Uuid, NamedPartitions] = {}
        repeats = False
        if is_changed or not self._is_settled(group, image):
            yield from self._refreshing(draft, group, image, bump=is_changed)
            yield None
            yield from self._maybe_assigning(draft, context)
        updated = self._reconcile(draft, updated, image, is_changed=is_changed)
        yield None
        if is_changed or not self._is_settled(group, image):
            repeats = context.now_ms - self._asked_ms.get(group_id, 0) >= self._settings.initialize_retry_ms
            lacking = yield from states.lacking_states(draft.group, image, repeats=repeats)
        asked = states.beginnings(draft.group, lacking, image, repeats=repeats)
        epoch = draft.group.epoch
        if asked:
            draft.states(states.with_initializing(draft.group.states, lacking))
        yield from encoding(draft.records)

        def ended(error: Error, context: Context) -> None:
            if error is Error.NONE:
                self._begin(group_id, epoch, asked, lacking, context.now_ms)

        if asked:
            self._asked_ms[group_id] = context.now_ms
        elif not draft.group.states.initializing:
            yield from self._maybe_settle(draft.group, image)
        self._counted.share_epochs += epoch - group.epoch
        self._watch(group_id, updated.member_id, image, context)
        tells = message.member_epoch == 0 or message.subscribed_topic_names is not None
        return CoordinatorResult(
            draft.records,
            ShareGroupHeartbeatResponse(
                member_id=updated.member_id,
                member_epoch=updated.epoch,
                heartbeat_interval_ms=self.heartbeat_ms(group_id, image),
                assignment=_told(updated.assigned) if tells or updated.assigned != member.assigned else None,
            ),
            ended if asked else None,
        )

    def _check_room(self, group: ShareGroup, member_id: str) -> None:
        """Raise `ApiError` for a new member of a full group."""
        if member_id in group.members:
            return
        if len(group.members) >= self._settings.max_size:
            text = f"The share group has reached its maximum capacity of {self._settings.max_size} members."
            raise ApiError(Error.GROUP_MAX_SIZE_REACHED, text)
        if self._is_full():
            raise ApiError(Error.GROUP_MAX_SIZE_REACHED, "The groups of the broker take as much memory as they may.")

    def _refreshing(
        self, draft: ShareDraft, before: ShareGroup, image: MetadataImage, *, bump: bool
    ) -> Generator[None, None, None]:
        """Raise the epoch of the group if its topics are not what they were, or if a state is new that is nobody's."""
        group = draft.group
        if not bump and before.members and group.assignment_epoch >= group.epoch:
            bump = yield from states.is_assignment_pending(before, image)
        yield from self.hashes.preparing(image, group.names)
        metadata_hash = self.hashes.of_group(image, group.names)
        if bump or metadata_hash != group.metadata_hash:
            draft.epoch(group.epoch + 1, metadata_hash)

    def _maybe_assigning(self, draft: ShareDraft, context: Context) -> Generator[None, None, None]:
        """Compute new targets, if the group has a new epoch and the last targets are old enough.

        Targets of the future come from a coordinator with another clock. They count as old: nobody waits for its time.
        """
        group, image = draft.group, context.image
        interval_ms = self.assignment_ms(group.group_id, image)
        is_due = not group.assignment_ms <= context.now_ms < group.assignment_ms + interval_ms
        if group.assignment_epoch >= group.epoch or not (group.assignment_ms == 0 or is_due):
            return
        members = [
            SharingMember(member_id, ids_of(image, group.members[member_id].names), group.targets.get(member_id, {}))
            for member_id in in_hash_map_order(group.members)
        ]
        yield None
        targets = yield from assigning(members, states.assignable(group, image), homogeneous=group.is_homogeneous)
        for member_id, target in targets.items():
            before = group.targets.get(member_id)
            if before is None or before != target:
                draft.target(member_id, target)
        draft.target_epoch(group.epoch, context.now_ms)

    def _reconcile(
        self, draft: ShareDraft, member: ShareMember, image: MetadataImage, *, is_changed: bool
    ) -> ShareMember:
        """Give a member its target at once: others may have the same partitions."""
        group = draft.group
        if member.epoch == group.assignment_epoch and not is_changed:
            return member
        topics = ids_of(image, member.names)
        target = group.targets.get(member.member_id, {})
        wanted = {topic_id: numbers for topic_id, numbers in target.items() if topic_id in topics}
        if member.epoch == group.assignment_epoch:
            updated = replace(member, assigned=wanted)
        else:
            epoch = group.assignment_epoch
            updated = replace(member, epoch=epoch, previous_epoch=member.epoch, assigned=wanted)
        if updated != member:
            draft.assignment(updated)
        return updated

    # ---------------------------------------------------------------------------------------------------------- settled

    def _is_settled(self, group: ShareGroup, image: MetadataImage) -> bool:
        """Whether a heartbeat that changes nothing finds nothing to do. A topic of which anything has changed is
        looked at.
        """
        seen = self._settled.get(group.group_id)
        if seen is None or not (
            seen.names is group.names
            and seen.targets is group.targets
            and seen.states is group.states
            and seen.metadata_hash == group.metadata_hash
            and group.assignment_epoch >= group.epoch
        ):
            return False
        if seen.topics is image.topics:
            return True
        if any(seen.topics.get(name) is not image.topics.get(name) for name in group.names):
            return False
        self._settled[group.group_id] = replace(seen, topics=image.topics)
        return True

    def _maybe_settle(self, group: ShareGroup, image: MetadataImage) -> Generator[None, None, None]:
        """Note a group of which every partition has a state and a member. One that is forgotten here is looked at."""
        if self._is_settled(group, image) or group.assignment_epoch < group.epoch:
            return
        is_pending = yield from states.is_assignment_pending(group, image)
        if is_pending:
            return
        if group.group_id not in self._settled:
            self._settled_bytes += text_bytes(group.group_id)
            if len(self._settled) >= LOOKS_NOTED or self._settled_bytes >= LOOKS_NOTED_BYTES:
                self._settled.clear()
                self._settled_bytes = text_bytes(group.group_id)
        self._settled[group.group_id] = _Settled(
            group.names, group.targets, group.states, group.metadata_hash, image.topics
        )

    def drop(self, group_id: str) -> None:
        """Forget a group that is deleted."""
        self._settled.pop(group_id, None)
        self._asked_ms.pop(group_id, None)

    # ---------------------------------------------------------------------------------------------------------- leaving

    def _leave(self, group: ShareGroup, member_id: str, context: Context) -> CoordinatorResult:
        if member_id not in group.members:
            raise ApiError(Error.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
        answer = ShareGroupHeartbeatResponse(member_id=member_id, member_epoch=LEAVING)
        return replace(self._fence(group, member_id, context), result=answer)

    def _fence(self, group: ShareGroup, member_id: str, context: Context) -> CoordinatorResult:
        """Remove a member; the next heartbeat of another one assigns what it had."""
        draft = ShareDraft(group)
        draft.end_member(member_id)
        metadata_hash = self.hashes.without_steps(context.image, draft.group.names, group.metadata_hash)
        draft.epoch(group.epoch + 1, metadata_hash)
        if not draft.group.members and (context.image.features.metadata_version or 0) >= GROUPS_OF_4_4:
            draft.target_epoch(draft.group.epoch, 0)
        self._counted.share_epochs += 1
        context.timers.cancel(ShareTimer(ShareWatch.SESSION, group.group_id, member_id))
        return CoordinatorResult(draft.records)

    # ----------------------------------------------------------------------------------------------------------- timers

    def start(self, group: ShareGroup, context: Context) -> CoordinatorResult:
        """Begin with a group whose log was loaded: each member has its full time from now on, and so has a request for
        states that the broker before may have sent.
        """
        for member_id in group.members:
            self._watch(group.group_id, member_id, context.image, context)
        if group.states.initializing:
            self._asked_ms[group.group_id] = context.now_ms
        return NOTHING

    def on_timer(self, group: ShareGroup | None, key: ShareTimer, context: Context) -> CoordinatorResult:
        """Remove a member that was silent for too long."""
        if group is None or key.member_id not in group.members:
            return NOTHING
        return self._fence(group, key.member_id, context)

    def _watch(self, group_id: str, member_id: str, image: MetadataImage, context: Context) -> None:
        timeout_ms = self.session_ms(group_id, image)
        context.timers.set(ShareTimer(ShareWatch.SESSION, group_id, member_id), context.now_ms + timeout_ms)

    # --------------------------------------------------------------------------------------------------------- settings

    def session_ms(self, group_id: str, image: MetadataImage) -> int:
        """The time for which a member may be silent, in ms."""
        return of_group(image, group_id, "share.session.timeout.ms", self._settings.session_timeout_ms)

    def heartbeat_ms(self, group_id: str, image: MetadataImage) -> int:
        """The time between two heartbeats of a member, in ms."""
        return of_group(image, group_id, "share.heartbeat.interval.ms", self._settings.heartbeat_interval_ms)

    def assignment_ms(self, group_id: str, image: MetadataImage) -> int:
        """The least time between two targets."""
        return of_group(image, group_id, "share.assignment.interval.ms", self._settings.assignment_interval_ms)

    # ----------------------------------------------------------------------------------------------------------- states

    def begun(
        self, group: ShareGroup | None, asked: Partitions, context: Context, *, is_done: bool
    ) -> CoordinatorResult:
        """The share coordinators have answered for some partitions: these may be given to members, or are asked for
        again by the next heartbeat if one of them could not be.

        Args:
            group: The group; None if it is gone.
            asked: What was asked for.
            context: What an operation may look at.
            is_done: Whether all of them have a state now.
        """
        if group is None:
            return NOTHING
        waited = {topic_id: one for topic_id, one in asked.items() if topic_id in group.states.initializing}
        if not waited:
            return NOTHING
        draft = ShareDraft(group)
        change = states.with_initialized if is_done else states.without_initializing
        draft.states(change(group.states, waited))
        if not draft.group.states.initializing:
            self._asked_ms.pop(group.group_id, None)
        return CoordinatorResult(draft.records)

    def note_asked(self, group_id: str, now_ms: int) -> None:
        """States were asked for besides those of a heartbeat."""
        self._asked_ms[group_id] = now_ms


def check(message: ShareGroupHeartbeatRequest) -> None:
    """Refuse what no group could accept; raises `ApiError`."""
    if is_blank(message.group_id):
        raise ApiError(Error.INVALID_REQUEST, "GroupId can't be empty.")
    if message.rack_id is not None and is_blank(message.rack_id):
        raise ApiError(Error.INVALID_REQUEST, "RackId can't be empty.")
    if message.member_epoch == 0:
        if not message.subscribed_topic_names:
            raise ApiError(Error.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    elif message.member_epoch < LEAVING:
        raise ApiError(Error.INVALID_REQUEST, "MemberEpoch is invalid.")
    if len(message.subscribed_topic_names or ()) > NAMED_TOPICS:
        raise ApiError(Error.INVALID_REQUEST, f"A member names at most {NAMED_TOPICS} topics.")


def _known(group: ShareGroup, message: ShareGroupHeartbeatRequest) -> ShareMember:
    """The member that sends a heartbeat, which is new if it joins; raises `ApiError`."""
    member_id, epoch = message.member_id, message.member_epoch
    member = group.members.get(member_id)
    if member is None:
        if epoch != 0:
            raise ApiError(Error.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
        return ShareMember(member_id)
    if epoch > member.epoch or epoch not in (0, member.epoch, member.previous_epoch):
        raise ApiError(Error.FENCED_MEMBER_EPOCH, f"The member has epoch {member.epoch}, not {epoch}. It must rejoin.")
    return member


def _merged(member: ShareMember, request: WireRequest[ShareGroupHeartbeatRequest]) -> ShareMember:
    """The member with what a heartbeat says; what it leaves out stays."""
    message = request.message
    names = message.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if message.rack_id is None else message.rack_id,
        names=member.names if names is None else frozenset(names),
        client_id=request.client_id or "",
        client_host=f"/{host_of_peer(request.peer)}",
    )


def _is_reconciled(group: ShareGroup, member: ShareMember) -> bool:
    return member.epoch == group.assignment_epoch == group.epoch


def _told(assigned: PartitionsByTopic) -> Assignment:
    return Assignment([TopicPartitions(topic_id, list(numbers)) for topic_id, numbers in sorted(assigned.items())])
