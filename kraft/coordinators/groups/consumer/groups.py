"""The consumer groups of a partition: heartbeats and timers (Kafka: `GroupMetadataManager.consumerGroupHeartbeat`)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.access.caller import host_of_peer
from kraft.access.errors import ApiError
from kraft.config.group_settings import ConsumerGroupConfig
from kraft.coordinators.groups.assignors import PartitionsByTopic
from kraft.coordinators.groups.consumer.draft import Draft
from kraft.coordinators.groups.consumer.fencing import ConsumerTimer, Watch, fence
from kraft.coordinators.groups.consumer.group import ConsumerGroup, ResolvedRegex
from kraft.coordinators.groups.consumer.hashing import TopicHashes
from kraft.coordinators.groups.consumer.member import AWAY, LEAVING, Assigned, Member, MemberState, is_subset
from kraft.coordinators.groups.consumer.member import NOTHING as NO_PARTITIONS
from kraft.coordinators.groups.consumer.reconciling import MemberTarget, reconciled
from kraft.coordinators.groups.consumer.resolving import Resolving, resolving
from kraft.coordinators.groups.consumer.targets import assigning, ids_of, preferred_assignor
from kraft.coordinators.runtime.budget import Budget
from kraft.coordinators.runtime.encoding import encoding
from kraft.coordinators.runtime.shard import NOTHING, Context, CoordinatorResult, Record
from kraft.coordinators.runtime.weights import text_bytes
from kraft.handling.coordinators import Counted
from kraft.handling.patterns import InvalidPattern, Pattern, weight_of
from kraft.limits import (
    GLANCES_PER_UNIT,
    GROUP_MEMBERS,
    HEARTBEAT_PARTITIONS,
    HEARTBEAT_TOPICS,
    LOOKS_NOTED,
    LOOKS_NOTED_BYTES,
    NAMED_TOPICS,
    PATTERN_UNITS_PER_PORTION,
    PATTERN_WEIGHT_PER_UNIT,
    REGEX_PAUSE_MS,
    REGEX_PORTION_PAUSE_MS,
)
from kraft.supported_features import GROUPS_OF_4_4
from kraft.wire import WireRequest
from metadata_log.image import MetadataImage, ResourceType, TopicsImage
from metadata_log.serde.codec import finished
from metadata_log.types import Uuid, random_uuid
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

NEVER: Final = -(2**63)
MayDescribe = Callable[[str], bool]
Downgrade = Callable[[ConsumerGroup, Sequence[Member], Context], CoordinatorResult | None]


class _Seen(Struct, frozen=True):
    """The group epoch and the topics of the last look at a group."""

    epoch: int
    topics: TopicsImage


class _Wish(Struct, frozen=True):
    """The parts of a member's subscription that a heartbeat has changed."""

    names: bool
    regex: bool
    resolved: bool
    """Whether the topics of the new regular expression are known, or there is none any more."""
    new_regex: bool
    """Whether nobody has used the regular expression before."""
    assignor: bool
    """Whether the members together ask for another assignor than before."""


class ConsumerGroups:
    """The consumer groups of one partition. What the log does not have of them is here.

    Args:
        settings: The settings.
        downgrade: Makes a classic group of what remains of a group without these members, if it may become one.
        counted: What the groups of the broker have done.
        is_full: Whether the groups of the broker take as much memory as they may.
    """

    def __init__(
        self,
        settings: ConsumerGroupConfig,
        downgrade: Downgrade,
        counted: Counted,
        is_full: Callable[[], bool] = lambda: False,
    ) -> None:
        self._is_full = is_full
        self._settings = settings
        self._counted = counted
        self._downgrade = downgrade
        self.hashes = TopicHashes()
        self._seen: dict[str, _Seen] = {}
        self._seen_bytes = 0
        self._resolving: dict[str, Resolving] = {}
        self._names: object = None
        """The names of the topics of the last image."""
        self._new_names_offset = 0
        """The offset of the metadata at which they changed last."""

    # ------------------------------------------------------------------------------------------------------- heartbeats

    def heartbeat(
        self,
        group: ConsumerGroup | None,
        request: WireRequest[ConsumerGroupHeartbeatRequest],
        may_describe: MayDescribe,
        context: Context,
        before: Iterable[Record] = (),
    ) -> CoordinatorResult:
        """ConsumerGroupHeartbeat, at once; see `heartbeating`."""
        return finished(self.heartbeating(group, request, may_describe, context, before))

    def is_much(
        self, group: ConsumerGroup | None, message: ConsumerGroupHeartbeatRequest, image: MetadataImage
    ) -> bool:
        """Whether a heartbeat has to do with very many topics or partitions, and may change something."""
        if message.member_epoch < 0:
            return False
        owned = message.topic_partitions
        if owned and sum([1 + len(one.partitions) for one in owned]) >= HEARTBEAT_PARTITIONS:
            return True
        names: Iterable[str] = message.subscribed_topic_names or ()
        if group is not None:
            if not names and self._is_settled(group, message, image):
                return False
            if group.has_many_topics:
                return True
            names = {*group.topics, *names}
        if len(message.subscribed_topic_names or ()) >= HEARTBEAT_TOPICS:
            return True
        topics = map(image.topics.get, names)
        return sum([len(topic.partitions) for topic in topics if topic is not None]) >= HEARTBEAT_PARTITIONS

    def is_large(self, group: ConsumerGroup, image: MetadataImage) -> bool:
        """Whether a group has very many topics or partitions."""
        if group.has_many_topics:
            return True
        topics = map(image.topics.get, group.topics)
        return sum([len(topic.partitions) for topic in topics if topic is not None]) >= HEARTBEAT_PARTITIONS

    def _is_settled(self, group: ConsumerGroup, message: ConsumerGroupHeartbeatRequest, image: MetadataImage) -> bool:
        member = group.members.get(message.member_id)
        return (
            member is not None
            and message.subscribed_topic_regex in (None, member.regex)
            and message.server_assignor in (None, member.assignor)
            and group.epoch == group.assignment_epoch
            and member.is_reconciled_to(group.epoch)
            and self._is_fresh(group, image.topics)
        )

    def heartbeating(
        self,
        group: ConsumerGroup | None,
        request: WireRequest[ConsumerGroupHeartbeatRequest],
        may_describe: MayDescribe,
        context: Context,
        before: Iterable[Record] = (),
    ) -> Generator[None, None, CoordinatorResult]:
        """ConsumerGroupHeartbeat in portions, of which only the last one has effects.

        Whoever lets time pass between two portions begins anew if the group or the topics have changed.

        Args:
            group: The group; None if there is none.
            request: The request, which `check` has passed.
            may_describe: Whether the client may see a topic.
            context: What an operation may look at.
            before: Records that come first, as those that end a classic group of this name.

        Raises:
            ApiError: The request is refused.
        """
        message = request.message
        if group is None:
            if message.member_epoch != 0:
                raise ApiError(Error.GROUP_ID_NOT_FOUND, f"Group {message.group_id} not found.")
            group = ConsumerGroup(message.group_id)
        if message.member_epoch in (LEAVING, AWAY):
            return self._leave(group, message, context)
        self.check_room(group, message.member_id, message.instance_id)
        draft = Draft(group, before)
        owned = _owned(message)
        yield None
        member = self._known(draft, message, message.member_id or str(random_uuid(context.rng)), owned)
        updated = _merged(member, request, message)
        if len(updated.names) > len(member.names) and self._is_full():
            raise ApiError(Error.GROUP_MAX_SIZE_REACHED, "The groups of the broker take as much memory as they may.")
        updated = yield from self.applying(draft, member, updated, owned, may_describe, context)
        group_id, member_id = group.group_id, updated.member_id
        self.watch(Watch.SESSION, group_id, member_id, self.session_ms(group_id, context.image), context)
        is_full = (
            message.rebalance_timeout_ms != -1
            and (message.subscribed_topic_names is not None or message.subscribed_topic_regex is not None)
            and owned is not None
        )
        tells = message.member_epoch == 0 or is_full or updated.assigned != member.assigned
        return CoordinatorResult(
            draft.records,
            ConsumerGroupHeartbeatResponse(
                member_id=member_id,
                member_epoch=updated.epoch,
                heartbeat_interval_ms=self.heartbeat_ms(group_id, context.image),
                assignment=_told(updated.assigned) if tells else None,
            ),
        )

    def check_room(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
        """Raise `ApiError` for a new member of a full group; a static one that comes back is not new."""
        if group.static_member(instance_id) is not None:
            return
        most = min(self._settings.max_size, GROUP_MEMBERS)
        if len(group.members) >= most and member_id not in group.members:
            raise ApiError(Error.GROUP_MAX_SIZE_REACHED, f"The group has {most} members, and may have no more.")
        if member_id not in group.members and self._is_full():
            raise ApiError(Error.GROUP_MAX_SIZE_REACHED, "The groups of the broker take as much memory as they may.")

    def _known(
        self, draft: Draft, message: ConsumerGroupHeartbeatRequest, member_id: str, owned: PartitionsByTopic | None
    ) -> Member:
        """The member that sends a heartbeat, which is new if it joins."""
        joins = message.member_epoch == 0
        if message.instance_id is None:
            member = draft.group.members.get(member_id)
            if member is None:
                if not joins:
                    raise ApiError(Error.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of the group.")
                return Member(member_id)
            _check_epoch(member, message.member_epoch, owned)
            return member
        existing = draft.group.static_member(message.instance_id)
        if not joins:
            existing = of_instance(existing, message.instance_id, member_id)
            _check_epoch(existing, message.member_epoch, owned)
            return existing
        if existing is None:
            return draft.group.members.get(member_id) or Member(member_id)
        if existing.classic is None and existing.epoch != AWAY:
            raise ApiError(Error.UNRELEASED_INSTANCE_ID, f"Instance {message.instance_id} is owned by another member.")
        return replaced(draft, existing, member_id)

    def applying(
        self,
        draft: Draft,
        member: Member,
        updated: Member,
        owned: PartitionsByTopic | None,
        may_describe: MayDescribe,
        context: Context,
    ) -> Generator[None, None, Member]:
        """Take what a member wants now, and bring it a step nearer to its target; returns it as it is then.

        The portions have no effects besides the draft, but for the last one.
        """
        before = draft.group
        wish = self._take_wish(draft, member, updated, context)
        yield None
        looks = yield from self._refreshing(draft, context, bump=wish.names or wish.resolved or wish.assignor)
        yield None
        yield from self._maybe_assigning(draft, context)
        changes = wish.names or wish.regex
        reconciled = yield from self.reconciling(draft, updated, owned, context, wish_changed=changes)
        yield from encoding(draft.records)
        self._maybe_resolve(before, draft.group, wish, may_describe, context)
        if looks:
            self._note_looked(before, draft.group, context)
        if reconciled is not updated:
            self._watch_revocation(draft.group, reconciled, context)
        return reconciled

    def apply_without_target(
        self, draft: Draft, member: Member, updated: Member, owned: PartitionsByTopic, context: Context
    ) -> tuple[Member, bool]:
        """As `apply`, for the last step before the group becomes a classic one: no new target is computed.

        Returns:
            The member, and whether the target is not that of the present epoch.
        """
        before = draft.group
        wish = self._take_wish(draft, member, updated, context)
        self._maybe_resolve(before, draft.group, wish, lambda _: False, context)
        bump = wish.names or wish.regex
        if finished(self._refreshing(draft, context, bump=bump)):
            self._note_looked(before, draft.group, context)
        if draft.group.assignment_epoch < draft.group.epoch:
            return updated, True
        reconciled = finished(self.reconciling(draft, updated, owned, context, wish_changed=bump))
        if reconciled is not updated:
            self._watch_revocation(draft.group, reconciled, context)
        return reconciled, False

    def _take_wish(self, draft: Draft, member: Member, updated: Member, context: Context) -> _Wish:
        before = draft.group
        new_regex = bool(updated.regex) and updated.regex not in before.regexes
        if new_regex:
            assert updated.regex is not None
            _check_regex(updated.regex, context.budget)
        if updated != member:
            draft.subscription(updated)
        changed = updated.regex != member.regex
        resolved = False
        if changed:
            if member.regex and before.regexes.get(member.regex) == 1:
                draft.end_regex(member.regex)
            resolved = updated.regex in before.resolved if updated.regex else bool(member.regex)
        return _Wish(
            updated.names != member.names,
            changed,
            changed and resolved and not new_regex,
            new_regex,
            (context.image.features.metadata_version or 0) >= GROUPS_OF_4_4
            and self._assignor_of(draft.group) != self._assignor_of(before),
        )

    def _assignor_of(self, group: ConsumerGroup) -> str:
        return preferred_assignor(group, self._settings.assignors)

    def _refreshing(self, draft: Draft, context: Context, *, bump: bool) -> Generator[None, None, bool]:
        """Raise the epoch of the group if it must be, or if its topics are not what they were.

        Returns:
            Whether the topics were looked at.
        """
        group = draft.group
        if not bump and self._is_fresh(group, context.image.topics):
            return False
        yield from self.hashes.preparing(context.image, group.topics)
        metadata_hash = self.hashes.of_group(context.image, group.topics)
        if bump or metadata_hash != group.metadata_hash:
            draft.epoch(group.epoch + 1, metadata_hash)
        if group.has_partition_metadata:
            draft.end_partition_metadata()
        return True

    def _note_looked(self, before: ConsumerGroup, group: ConsumerGroup, context: Context) -> None:
        self._counted.epochs += group.epoch - before.epoch
        self._note_seen(group, context)

    def _note_seen(self, group: ConsumerGroup, context: Context) -> None:
        """Note that the topics of a group were looked at. A group forgotten here is only looked at again."""
        if group.group_id not in self._seen:
            self._seen_bytes += text_bytes(group.group_id)
            if len(self._seen) >= LOOKS_NOTED or self._seen_bytes >= LOOKS_NOTED_BYTES:
                self._seen.clear()
                self._seen_bytes = text_bytes(group.group_id)
        self._seen[group.group_id] = _Seen(group.epoch, context.image.topics)

    def _is_fresh(self, group: ConsumerGroup, topics: TopicsImage) -> bool:
        """Whether the topics of the group are those that were looked at; a topic of which anything has changed is not.

        The look does not count if the epoch that it has raised was not written.
        """
        seen = self._seen.get(group.group_id)
        if seen is None or group.epoch < seen.epoch:
            return False
        if seen.topics is topics:
            return True
        if any(seen.topics.get(name) is not topics.get(name) for name in group.topics):
            return False
        self._seen[group.group_id] = _Seen(seen.epoch, topics)
        return True

    def _maybe_assigning(self, draft: Draft, context: Context) -> Generator[None, None, None]:
        """Compute new targets, if the group has a new epoch and the last targets are old enough.

        Targets of the future come from a coordinator with another clock. They count as old: nobody waits for its time.
        """
        group = draft.group
        due_ms = group.assignment_ms + self.assignment_ms(group.group_id, context.image)
        is_due = not group.assignment_ms <= context.now_ms < due_ms
        if group.assignment_epoch < group.epoch and (group.assignment_ms == 0 or is_due):
            yield from assigning(draft, context.image, self._settings.assignors, context.now_ms)
            yield None

    def reconciling(
        self,
        draft: Draft,
        member: Member,
        owned: PartitionsByTopic | None,
        context: Context,
        *,
        wish_changed: bool,
    ) -> Generator[None, None, Member]:
        """Bring a member a step nearer to its target; returns the same object if there is no step."""
        group = draft.group
        if not wish_changed and member.is_reconciled_to(group.assignment_epoch):
            return member
        target = MemberTarget(group.assignment_epoch, group.targets.get(member.member_id, {}))
        topics = ids_of(context.image, group.topics_of(member))
        yield None
        updated = reconciled(group, member, target, topics, owned, wish_changed=wish_changed)
        if updated == member:
            return member
        yield None
        draft.assignment(updated)
        yield None
        return updated

    def _watch_revocation(self, group: ConsumerGroup, member: Member, context: Context) -> None:
        if member.classic is not None:
            return
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            timeout_ms = member.rebalance_timeout_ms
            self.watch(Watch.REBALANCE, group.group_id, member.member_id, timeout_ms, context)
        else:
            context.timers.cancel(ConsumerTimer(Watch.REBALANCE, group.group_id, member.member_id))

    # ---------------------------------------------------------------------------------------------------------- leaving

    def _leave(
        self, group: ConsumerGroup, message: ConsumerGroupHeartbeatRequest, context: Context
    ) -> CoordinatorResult:
        if message.instance_id is None:
            member = group.members.get(message.member_id)
            if member is None:
                raise ApiError(Error.UNKNOWN_MEMBER_ID, f"Member {message.member_id} is not a member of the group.")
        else:
            existing = group.static_member(message.instance_id)
            member = of_instance(existing, message.instance_id, message.member_id)
        answer = ConsumerGroupHeartbeatResponse(member_id=message.member_id, member_epoch=message.member_epoch)
        if message.member_epoch == LEAVING:
            return replace(self.fence(group, (member,), context), result=answer)
        draft = Draft(group)
        assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()}
        draft.assignment(replace(member, epoch=AWAY, assigned=assigned, revoking=NO_PARTITIONS))
        return CoordinatorResult(draft.records, answer)

    def fence(self, group: ConsumerGroup, members: Sequence[Member], context: Context) -> CoordinatorResult:
        """Remove members. If only members of the classic protocol remain, the group may become a classic one."""
        following = self._downgrade(group, members, context)
        if following is not None:
            self.drop(group, context)
            return following
        draft = Draft(group)
        # Each time the topics of the group are hashed, and it may have many silent members.
        context.budget.take(len(group.names) // GLANCES_PER_UNIT)
        fence(draft, members, context.image, self.hashes, context.timers)
        return CoordinatorResult(draft.records)

    # ---------------------------------------------------------------------------------------------- regular expressions

    def _maybe_resolve(
        self, before: ConsumerGroup, group: ConsumerGroup, wish: _Wish, may_describe: MayDescribe, context: Context
    ) -> None:
        """Begin to look for the topics of all regular expressions, if it is time for it."""
        is_wanted = (wish.new_regex or before.regexes) and group.regexes
        if not is_wanted or group.group_id in self._resolving:
            return
        self._note_names(context.image)
        last_ms = max((one.timestamp_ms for one in before.resolved.values()), default=NEVER)
        if context.now_ms <= last_ms + REGEX_PAUSE_MS:
            return
        version = min((one.version for one in before.resolved.values()), default=0)
        if (
            wish.new_regex
            or len(group.regexes) != len(before.resolved)
            or version < self._new_names_offset
            or context.now_ms > last_ms + self._settings.regex_refresh_ms
        ):
            resolution = resolving(sorted(group.regexes), context.image, may_describe, self.hashes, context.now_ms)
            self._resolving[group.group_id] = resolution
            context.timers.set(ConsumerTimer(Watch.REGEX, group.group_id), context.now_ms)

    def _note_names(self, image: MetadataImage) -> None:
        if self._names is not image.topics.by_name:
            self._names, self._new_names_offset = image.topics.by_name, image.end.offset - 1

    def _resolve(self, group: ConsumerGroup | None, key: ConsumerTimer, context: Context) -> CoordinatorResult:
        """The next portion of the look for topics."""
        resolution = self._resolving.get(key.group_id)
        if resolution is None or group is None:
            self._resolving.pop(key.group_id, None)
            return NOTHING
        budget, taken = context.budget, 0
        try:
            while taken < PATTERN_UNITS_PER_PORTION and not budget.is_spent:
                units = next(resolution)
                budget.take(units)
                taken += units
        except StopIteration as end:
            del self._resolving[key.group_id]
            return self._resolved(group, end.value, context)
        context.timers.set(key, context.now_ms + REGEX_PORTION_PAUSE_MS)
        return NOTHING

    def _resolved(self, group: ConsumerGroup, found: dict[str, ResolvedRegex], context: Context) -> CoordinatorResult:
        draft = Draft(group)
        bump = False
        for regex, resolved in found.items():
            if regex in group.regexes:
                old = group.resolved.get(regex)
                bump = bump or resolved.topics != (frozenset() if old is None else old.topics)
                draft.regex(regex, resolved)
        value = self.hashes.of_group(context.image, draft.group.topics)
        if bump or value != group.metadata_hash:
            draft.epoch(group.epoch + 1, value)
            self._note_seen(draft.group, context)
        return CoordinatorResult(draft.records)

    # ----------------------------------------------------------------------------------------------------------- timers

    def start(self, group: ConsumerGroup, context: Context) -> CoordinatorResult:
        """Begin with a group whose log was loaded: each member has its full time from now on."""
        session_ms = self.session_ms(group.group_id, context.image)
        for member in group.members.values():
            self.watch(Watch.SESSION, group.group_id, member.member_id, session_ms, context)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                timeout_ms = member.rebalance_timeout_ms
                self.watch(Watch.REBALANCE, group.group_id, member.member_id, timeout_ms, context)
        return NOTHING

    def on_timer(self, group: ConsumerGroup | None, key: ConsumerTimer, context: Context) -> CoordinatorResult:
        """Act on a timer of a group or a member that has ended."""
        if key.watch is Watch.REGEX:
            return self._resolve(group, key, context)
        member = None if group is None else group.members.get(key.member_id)
        if group is None or member is None:
            return NOTHING
        if key.watch is Watch.REBALANCE and not (
            member.state is MemberState.UNREVOKED_PARTITIONS and member.epoch >= 0
        ):
            return NOTHING
        return self.fence(group, (member,), context)

    def watch(self, watch: Watch, group_id: str, member_id: str, timeout_ms: int, context: Context) -> None:
        """Expect something of a member within a time."""
        context.timers.set(ConsumerTimer(watch, group_id, member_id), context.now_ms + timeout_ms)

    def drop(self, group: ConsumerGroup, context: Context) -> None:
        """Forget a group that is deleted or becomes one of another type."""
        self._seen.pop(group.group_id, None)
        self._resolving.pop(group.group_id, None)
        context.timers.cancel(ConsumerTimer(Watch.REGEX, group.group_id))

    # --------------------------------------------------------------------------------------------------------- settings

    def session_ms(self, group_id: str, image: MetadataImage) -> int:
        """The time for which a member may be silent, in ms."""
        return of_group(image, group_id, "consumer.session.timeout.ms", self._settings.session_timeout_ms)

    def heartbeat_ms(self, group_id: str, image: MetadataImage) -> int:
        """The time between two heartbeats of a member, in ms."""
        return of_group(image, group_id, "consumer.heartbeat.interval.ms", self._settings.heartbeat_interval_ms)

    def assignment_ms(self, group_id: str, image: MetadataImage) -> int:
        """The least time between two targets."""
        return of_group(image, group_id, "consumer.assignment.interval.ms", self._settings.assignment_interval_ms)


def check(message: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]) -> None:
    """Refuse what no group could accept; raises `ApiError`."""
    epoch = message.member_epoch
    needs_id = version >= 1 or epoch > 0 or epoch == LEAVING
    for name, text, needed in (
        ("MemberId", message.member_id, needs_id),
        ("GroupId", message.group_id, True),
        ("InstanceId", message.instance_id, True),
        ("RackId", message.rack_id, True),
    ):
        if needed and text is not None and is_blank(text):
            raise ApiError(Error.INVALID_REQUEST, f"{name} can't be empty.")
    if epoch == 0:
        if message.rebalance_timeout_ms == -1:
            raise ApiError(Error.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
        if message.topic_partitions is None or message.topic_partitions:
            raise ApiError(Error.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
        if message.subscribed_topic_names is None and message.subscribed_topic_regex is None:
            raise ApiError(Error.INVALID_REQUEST, "A member that joins must name topics, or a regular expression.")
    elif (epoch == AWAY and message.instance_id is None) or epoch < AWAY:
        raise ApiError(Error.INVALID_REQUEST, "The epoch of the member is invalid.")
    if len(message.subscribed_topic_names or ()) > NAMED_TOPICS:
        raise ApiError(Error.INVALID_REQUEST, f"A member names at most {NAMED_TOPICS} topics.")
    if message.server_assignor is not None and message.server_assignor not in assignors:
        raise ApiError(Error.UNSUPPORTED_ASSIGNOR, f"The assignors are {', '.join(assignors)}.")


_TRIMMED: Final = "".join(map(chr, range(33)))
"""The characters that `String.trim` of Java takes away."""


def is_blank(text: str) -> bool:
    """Whether nothing is left of a text without blanks and control characters at its ends."""
    return not text.strip(_TRIMMED)


def _check_regex(regex: str, budget: Budget) -> None:
    try:
        budget.take(weight_of(regex) // PATTERN_WEIGHT_PER_UNIT)
        Pattern(regex)
    except InvalidPattern as bad:
        raise ApiError(Error.INVALID_REGULAR_EXPRESSION, f"The regular expression is not valid: {bad}") from None


def _check_epoch(member: Member, epoch: int, owned: PartitionsByTopic | None) -> None:
    """Raise `ApiError` if the epoch of a request is neither 0 nor that of the member.

    The epoch before is allowed if the member owns no more than it is assigned: it may have missed an answer.
    """
    if epoch in (0, member.epoch):
        return
    if epoch > member.epoch or epoch != member.previous_epoch or not is_subset(owned, member.assigned):
        raise ApiError(Error.FENCED_MEMBER_EPOCH, f"The member has epoch {member.epoch}, not {epoch}. It must rejoin.")


def of_instance(member: Member | None, instance_id: str, member_id: str) -> Member:
    """The member of a static instance, if it is the one that asks; raises `ApiError`."""
    if member is None:
        raise ApiError(Error.UNKNOWN_MEMBER_ID, f"Instance {instance_id} is unknown.")
    if member.member_id != member_id:
        raise ApiError(Error.FENCED_INSTANCE_ID, f"Instance {instance_id} belongs to another member.")
    return member


def replaced(draft: Draft, old: Member, member_id: str) -> Member:
    """Let a static instance go on as another member, with everything that it had."""
    target = draft.group.targets.get(old.member_id, {})
    new = replace(old, member_id=member_id, epoch=0, previous_epoch=0)
    draft.end_member(old.member_id)
    draft.subscription(new)
    draft.target(member_id, target)
    draft.assignment(new)
    return new


def _merged(member: Member, request: WireRequest, message: ConsumerGroupHeartbeatRequest) -> Member:
    """The member with what a heartbeat says; what it leaves out stays."""
    names, regex = message.subscribed_topic_names, message.subscribed_topic_regex
    return replace(
        member,
        instance_id=member.instance_id if message.instance_id is None else message.instance_id,
        rack_id=member.rack_id if message.rack_id is None else message.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if message.rebalance_timeout_ms == -1
        else message.rebalance_timeout_ms,
        assignor=member.assignor if message.server_assignor is None else message.server_assignor,
        names=member.names if names is None else frozenset(names),
        regex=member.regex if regex is None else regex,
        client_id=request.client_id or "",
        client_host=f"/{host_of_peer(request.peer)}",
        classic=None,
    )


def _owned(message: ConsumerGroupHeartbeatRequest) -> dict[Uuid, tuple[int, ...]] | None:
    """The partitions that a member says that it has; a topic may be named very often."""
    if message.topic_partitions is None:
        return None
    owned: dict[Uuid, list[int]] = {}
    for one in message.topic_partitions:
        owned.setdefault(one.topic_id, []).extend(one.partitions)
    return {topic_id: tuple(numbers) for topic_id, numbers in owned.items()}


def _told(assigned: Assigned) -> Assignment:
    return Assignment(
        [
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id, sorted(epochs))
            for topic_id, epochs in sorted(assigned.items())
        ]
    )


def of_group(image: MetadataImage, group_id: str, key: str, default: int) -> int:
    """The number that a group has in its configuration; that of the broker, if it has none."""
    value = image.configs.of((ResourceType.GROUP, group_id)).get(key)
    return default if value is None else int(value)
