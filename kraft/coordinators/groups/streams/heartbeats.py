"""The streams groups of a partition: heartbeats and timers (Kafka: `GroupMetadataManager.streamsGroupHeartbeat`)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.access.errors import ApiError
from kraft.config.group_settings import StreamsGroupConfig
from kraft.coordinators.groups.consumer.hashing import TopicHashes
from kraft.coordinators.groups.streams.assignor import TaskCounts, TaskMember, assigning
from kraft.coordinators.groups.streams.draft import StreamsDraft
from kraft.coordinators.groups.streams.endpoints import finding_endpoints
from kraft.coordinators.groups.streams.group import (
    AWAY,
    MemberState,
    StreamsGroup,
    StreamsMember,
    required_topics,
)
from kraft.coordinators.groups.streams.reconciling import TaskTarget, reconciling
from kraft.coordinators.groups.streams.settings import STANDBYS, StreamsSettings, missing_tags
from kraft.coordinators.groups.streams.tasks import HOLDS_NOTHING, NOTHING, HeldTasks, Tasks, is_within
from kraft.coordinators.groups.streams.topology import (
    Configured,
    ConfiguredSubtopology,
    InternalTopic,
    Status,
    configuring,
)
from kraft.coordinators.groups.streams.wishes import (
    Offsets,
    are_same,
    check_tasks,
    merged,
    owned_tasks,
    recorded,
    told_offsets,
    topic_names,
)
from kraft.coordinators.runtime.encoding import encoding
from kraft.coordinators.runtime.shard import NOTHING as NO_OPERATION
from kraft.coordinators.runtime.shard import Context, CoordinatorResult, Record
from kraft.coordinators.runtime.weights import text_bytes
from kraft.handling.coordinators import Counted
from kraft.handling.orders import in_hash_map_order
from kraft.limits import (
    GROUP_MEMBERS,
    LOOKS_NOTED,
    LOOKS_NOTED_BYTES,
    STREAMS_MEMBERS_AT_ONCE,
    STREAMS_OFFSETS,
    STREAMS_PARTITIONS_AT_ONCE,
)
from kraft.wire import WireRequest
from metadata_log.image import MetadataImage, TopicsImage
from metadata_log.records.consumer_offsets import StreamsGroupTopologyValue
from metadata_log.serde.codec import finished
from metadata_log.types import NO_EPOCH
from transport.protocol.errors import Error
from transport.protocol.messages import streams_group_heartbeat as messages
from transport.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupHeartbeatResponseTaskIds,
)

TAGS_SINCE: Final = 1
"""The version that tells a member which tags it lacks."""


class StreamsWatch(Enum):
    """The kinds of timers of streams groups."""

    SESSION = "session"
    """The next heartbeat of a member."""
    REBALANCE = "rebalance"
    """A member gives up tasks."""
    INITIAL = "initial"
    """The first targets of a group wait for further members."""


class StreamsTimer(Struct, frozen=True, gc=False):
    """The key of a timer of a streams group."""

    watch: StreamsWatch
    group_id: str
    member_id: str = ""


class Told(Struct, frozen=True):
    """The result of a heartbeat: the answer, and the internal topics that the group lacks."""

    answer: StreamsGroupHeartbeatResponse
    lacking: tuple[InternalTopic, ...] = ()


class _Offsets(Struct, frozen=True):
    """The offsets that a member has told."""

    offsets: Offsets = {}
    ends: Offsets = {}

    @property
    def count(self) -> int:
        """How many they are."""
        return sum(map(len, (*self.offsets.values(), *self.ends.values())))


NO_OFFSETS: Final = _Offsets()


class _Look(Struct, frozen=True):
    """The last look at the topics of a group."""

    topology: StreamsGroupTopologyValue
    names: tuple[str, ...]
    topics: TopicsImage
    metadata_hash: int
    configured: Configured


class _Live(Struct):
    """The parts of a group that the log does not have."""

    offsets: dict[str, _Offsets]
    """By member."""
    shutdown_by: str | None = None
    """The member that has asked for the end of the application."""
    endpoints_epoch: int = 0


class StreamsGroups:
    """The streams groups of one partition. What the log does not have of them is here.

    Args:
        config: The settings.
        counted: What the groups of the broker have done.
        is_full: Whether the groups of the broker take as much memory as they may.
    """

    def __init__(
        self, config: StreamsGroupConfig, counted: Counted, is_full: Callable[[], bool] = lambda: False
    ) -> None:
        self._config = config
        self.settings = StreamsSettings(config)
        self._counted = counted
        self._is_full = is_full
        self._hashes = TopicHashes()
        self._looks: dict[str, _Look] = {}
        self._looks_bytes = 0
        self._live: dict[str, _Live] = {}
        self._offsets = 0
        """How many offsets of tasks are held."""

    # ------------------------------------------------------------------------------------------------------- heartbeats

    def is_much(self, group: StreamsGroup | None, message: StreamsGroupHeartbeatRequest, image: MetadataImage) -> bool:
        """Whether a heartbeat has to do with very many topics, partitions or tasks."""
        if message.member_epoch < 0:
            return False
        if len(message.task_offsets or ()) + len(message.task_end_offsets or ()) >= STREAMS_PARTITIONS_AT_ONCE:
            return True
        roles = (message.active_tasks, message.standby_tasks, message.warmup_tasks)
        if sum([1 + len(one.partitions) for role in roles for one in role or ()]) >= STREAMS_PARTITIONS_AT_ONCE:
            return True
        names: Iterable[str] = ()
        if message.topology is not None:
            names = topic_names(message.topology)
        elif group is not None and group.topology is not None:
            look = self._looks.get(group.group_id)
            if look is not None and look.topology is group.topology:
                if look.configured.partitions >= STREAMS_PARTITIONS_AT_ONCE:
                    return True
                names = look.names
            else:
                names = required_topics(group.topology)
        topics = map(image.topics.get, names)
        found = sum([1 + len(topic.partitions) for topic in topics if topic is not None])
        return found >= STREAMS_PARTITIONS_AT_ONCE or (
            group is not None and len(group.members) >= STREAMS_MEMBERS_AT_ONCE
        )

    def heartbeating(
        self,
        group: StreamsGroup | None,
        request: WireRequest[StreamsGroupHeartbeatRequest],
        context: Context,
        before: Iterable[Record] = (),
    ) -> Generator[None, None, CoordinatorResult]:
        """StreamsGroupHeartbeat in portions, of which only the last one has effects.

        Args:
            group: The group; None if there is none.
            request: The request, which `check` has passed.
            context: What an operation may look at.
            before: Records that end what had the name of the group before it.

        Raises:
            ApiError: The request is refused.
        """
        message, image = request.message, context.image
        group_id, member_id, joins = message.group_id, message.member_id, message.member_epoch == 0
        if group is None:
            if not joins:
                is_leaving = message.member_epoch < 0
                text = f"Group {group_id} not found." if is_leaving else f"Streams group {group_id} not found."
                raise ApiError(Error.GROUP_ID_NOT_FOUND, text)
            group = StreamsGroup(group_id)
        if message.member_epoch < 0:
            return self._leave(group, message, context)
        if joins:
            self._check_room(group, member_id, message.instance_id)
        draft, owned = StreamsDraft(group, before), owned_tasks(message)
        yield None
        member = self._known(draft, message, owned)
        updated = merged(member, request)
        if updated != member or member_id not in draft.group.members:
            draft.metadata(updated)
        bump = updated != member and (message.instance_id is None or _matters(member, updated))
        statuses: list[messages.Status] = []
        topology = _topology_of(draft, message)
        if group.topology is not None and updated.topology_epoch < topology.epoch:
            statuses.append(
                _status(
                    Status.STALE_TOPOLOGY,
                    f"The member's topology epoch {updated.topology_epoch} is behind the group's topology epoch"
                    f" {topology.epoch}.",
                )
            )
        yield None
        look = yield from self._looking(draft.group, topology, image)
        configured, metadata_hash = look.configured, look.metadata_hash
        validated = NO_EPOCH
        if configured.is_ready:
            validated = topology.epoch
            assert configured.subtopologies is not None, configured
            check_tasks(owned or NOTHING, configured.subtopologies)
        yield None
        offsets = self._merged_offsets(group_id, message)
        configs = self.settings.of_assignor(group_id, image)
        bump |= metadata_hash != group.metadata_hash or validated != group.validated_epoch
        bump |= configs != group.assignment_configs
        if bump:
            draft.epoch(metadata_hash, validated, configs)
        initial = StreamsTimer(StreamsWatch.INITIAL, group_id)
        delay_ms = self.settings.initial_delay_ms(group_id, image)
        starts = not group.members and delay_ms > 0 and initial not in context.timers
        waits = starts or initial in context.timers
        if waits:
            text = "Assignment delayed due to the configured initial rebalance delay."
            statuses.append(_status(Status.ASSIGNMENT_DELAYED, text))
            target = NOTHING
        else:
            told = {**self._told_offsets(group_id), member_id: offsets}
            is_delayed = yield from self._maybe_assigning(draft, configured, configs, told, context)
            if is_delayed:
                text = "Assignment delayed due to the configured assignment interval."
                statuses.append(_status(Status.ASSIGNMENT_DELAYED, text))
            target = draft.group.targets.get(member_id, NOTHING)
        yield None
        after = yield from self._reconciling(draft, updated, target, owned)
        live = self._live.get(group_id) or _Live({})
        epoch = live.endpoints_epoch
        is_changed = after.assigned != member.assigned
        if after.endpoint != member.endpoint or (is_changed and after.endpoint is not None):
            epoch += 1
        endpoints: list[messages.EndpointToPartitions] | None = None
        if epoch != message.endpoint_information_epoch:
            others = [one for one in draft.group.members.values() if one.member_id != member_id]
            endpoints = yield from finding_endpoints([*others, after], configured.subtopologies or {}, image)
        yield from encoding(draft.records)
        # From here on there are effects.
        if starts:
            context.timers.set(initial, context.now_ms + delay_ms)
        self._note_look(group_id, look)
        if not group.is_new:
            # As in Kafka, where a group is not there before its first records are.
            self._note_live(group_id, member_id, message, offsets, epoch)
        if bump:
            self._counted.streams_epochs += 1
        if member.member_id != member_id:
            self._forget(group_id, member.member_id, context)
        self._watch(after, updated, draft.group, context)
        if not configured.is_ready:
            assert configured.status is not None, configured
            statuses.append(_status(configured.status, configured.text))
        statuses += self._wishes(group_id, configs, after, request.version)
        tells = joins or is_changed
        held = after.assigned
        answer = StreamsGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self.settings.heartbeat_ms(group_id, image),
            task_offset_interval_ms=self.settings.offset_interval_ms(group_id, image),
            acceptable_recovery_lag=self.settings.recovery_lag(group_id, image),
            status=statuses,
            active_tasks=_told(held.active) if tells else None,
            standby_tasks=_told(held.standby) if tells else None,
            warmup_tasks=_told(held.warmup) if tells else None,
            endpoint_information_epoch=0 if group.is_new else epoch,
            partitions_by_user_endpoint=endpoints,
        )
        return CoordinatorResult(draft.records, Told(answer, configured.lacking))

    def _check_room(self, group: StreamsGroup, member_id: str, instance_id: str | None) -> None:
        """Raise `ApiError` for a new member of a full group; a static one that comes back is not new."""
        if group.static_member(instance_id) is not None or member_id in group.members:
            return
        most = min(self._config.max_size, GROUP_MEMBERS)
        if len(group.members) >= most:
            text = f"The streams group has reached its maximum capacity of {most} members."
            raise ApiError(Error.GROUP_MAX_SIZE_REACHED, text)
        if self._is_full():
            raise ApiError(Error.GROUP_MAX_SIZE_REACHED, "The groups of the broker take as much memory as they may.")

    def _known(self, draft: StreamsDraft, message: StreamsGroupHeartbeatRequest, owned: Tasks | None) -> StreamsMember:
        """The member that sends a heartbeat, which is new if it joins; raises `ApiError`.

        A static member that comes back takes the place of the one that has left.
        """
        group, member_id, joins = draft.group, message.member_id, message.member_epoch == 0
        if message.instance_id is None:
            member = group.members.get(member_id)
            if member is None:
                if not joins:
                    raise _unknown(group, member_id)
                return StreamsMember(member_id)
            _check_epoch(member, message.member_epoch, owned)
            return member
        static = group.static_member(message.instance_id)
        if not joins:
            static = _own_static(static, message)
            _check_epoch(static, message.member_epoch, owned)
            return static
        if static is None:
            return group.members.get(member_id) or StreamsMember(member_id)
        if static.epoch != AWAY:
            text = f"Static member {member_id} with instance id {message.instance_id} cannot join the group because the"
            owner = f"instance id is owned by {static.member_id} member."
            raise ApiError(Error.UNRELEASED_INSTANCE_ID, f"{text} {owner}")
        back = replace(static, member_id=member_id, epoch=0, previous_epoch=0)
        target = group.targets.get(static.member_id, NOTHING)
        draft.end_member(static.member_id)
        draft.metadata(back)
        draft.target(member_id, target)
        draft.assignment(back)
        return draft.group.members[member_id]

    # --------------------------------------------------------------------------------------------------------- topology

    def _looking(
        self, group: StreamsGroup, topology: StreamsGroupTopologyValue, image: MetadataImage
    ) -> Generator[None, None, _Look]:
        """Look at the topics of the group, in portions, unless they are what they were."""
        look = self._looks.get(group.group_id)
        if look is not None and look.topology is topology:
            if look.topics is image.topics:
                return look
            if all(look.topics.get(name) is image.topics.get(name) for name in look.names):
                return replace(look, topics=image.topics)
        names = tuple(required_topics(topology))
        yield from self._hashes.preparing(image, names)
        metadata_hash = self._hashes.of_group(image, names)
        configured = yield from configuring(topology, image)
        return _Look(topology, names, image.topics, metadata_hash, configured)

    def _note_look(self, group_id: str, look: _Look) -> None:
        """Keep a look. One that is forgotten here is had again."""
        if group_id not in self._looks:
            self._looks_bytes += text_bytes(group_id)
            if len(self._looks) >= LOOKS_NOTED or self._looks_bytes >= LOOKS_NOTED_BYTES:
                self._looks.clear()
                self._looks_bytes = text_bytes(group_id)
        self._looks[group_id] = look

    def ready_topology(self, group: StreamsGroup) -> Mapping[str, ConfiguredSubtopology] | None:
        """The topology with the partitions of its topics, as of the last look; None if it does not run."""
        look = self._looks.get(group.group_id)
        is_ready = look is not None and look.topology is group.topology and look.configured.is_ready
        return look.configured.subtopologies if look is not None and is_ready else None

    # --------------------------------------------------------------------------------------------------------- targets

    def _maybe_assigning(
        self,
        draft: StreamsDraft,
        configured: Configured,
        configs: Mapping[str, str],
        told: Mapping[str, _Offsets],
        context: Context,
    ) -> Generator[None, None, bool]:
        """Compute new targets, if the group has a new epoch; whether it is too early for that.

        Targets of the future come from a coordinator with another clock. They count as old: nobody waits for its time.
        """
        group = draft.group
        if group.assignment_epoch >= group.epoch:
            return False
        interval_ms = self.settings.assignment_ms(group.group_id, context.image)
        is_early = group.assignment_ms <= context.now_ms < group.assignment_ms + interval_ms
        if group.assignment_ms and is_early:
            return True
        order = in_hash_map_order(group.members)
        targets = dict.fromkeys(order, NOTHING)
        if configured.is_ready:
            assert configured.subtopologies is not None, configured
            counts = {
                name: TaskCounts(one.tasks, bool(one.changelogs)) for name, one in configured.subtopologies.items()
            }
            members = [_task_member(group.members[one], told.get(one, NO_OFFSETS)) for one in order]
            yield None
            targets |= yield from assigning(members, counts, int(configs.get(STANDBYS, "0")))
        for member_id in order:
            if group.targets.get(member_id) != targets[member_id]:
                draft.target(member_id, targets[member_id])
        draft.target_epoch(group.epoch, context.now_ms)
        return False

    def _reconciling(
        self, draft: StreamsDraft, member: StreamsMember, target: Tasks, owned: Tasks | None
    ) -> Generator[None, None, StreamsMember]:
        """Let a member take its next step to its target, in portions."""
        group = draft.group
        known = group.members[member.member_id]
        if known.is_reconciled_to(group.assignment_epoch):
            return known
        after = yield from reconciling(group, known, TaskTarget(group.assignment_epoch, target), owned)
        if after != known:
            draft.assignment(after)
        return draft.group.members[member.member_id]

    # ----------------------------------------------------------------------------------------------- what is not logged

    def _told_offsets(self, group_id: str) -> Mapping[str, _Offsets]:
        live = self._live.get(group_id)
        return {} if live is None else live.offsets

    def _merged_offsets(self, group_id: str, message: StreamsGroupHeartbeatRequest) -> _Offsets:
        """The offsets of a member with those of a heartbeat; raises `ApiError`."""
        known = self._told_offsets(group_id).get(message.member_id, NO_OFFSETS)
        offsets, ends = message.task_offsets, message.task_end_offsets
        return _Offsets(
            known.offsets if offsets is None else told_offsets(offsets),
            known.ends if ends is None else told_offsets(ends),
        )

    def offsets_of(self, group_id: str, member_id: str) -> tuple[Offsets, Offsets]:
        """The offsets of its tasks that a member has told, and the ends of their changelogs."""
        told = self._told_offsets(group_id).get(member_id, NO_OFFSETS)
        return told.offsets, told.ends

    def _note_live(
        self, group_id: str, member_id: str, message: StreamsGroupHeartbeatRequest, offsets: _Offsets, epoch: int
    ) -> None:
        live = self._live.get(group_id)
        if live is None:
            if not (offsets.count or epoch or message.shutdown_application):
                return
            live = self._live[group_id] = _Live({})
        live.endpoints_epoch = epoch
        if message.shutdown_application and live.shutdown_by is None:
            live.shutdown_by = member_id
        known = live.offsets.pop(member_id, NO_OFFSETS)
        self._offsets -= known.count
        if offsets.count and self._offsets + offsets.count <= STREAMS_OFFSETS:
            live.offsets[member_id] = offsets
            self._offsets += offsets.count

    def _wishes(
        self, group_id: str, configs: Mapping[str, str], member: StreamsMember, version: int
    ) -> list[messages.Status]:
        """The wishes of others, or of settings, to a member."""
        statuses = []
        live = self._live.get(group_id)
        if live is not None and live.shutdown_by is not None:
            text = f"Streams group member {live.shutdown_by} encountered a fatal error and requested a shutdown"
            statuses.append(_status(Status.SHUTDOWN_APPLICATION, f"{text} for the entire application."))
        missing = missing_tags(configs, member.client_tags) if version >= TAGS_SINCE else []
        if missing:
            text = "Missing required client tags for rack-aware standby assignment"
            hint = "Configure them via 'client.tag.<tagKey>' in your Streams config."
            statuses.append(_status(Status.MISSING_CLIENT_TAGS, f"{text}: [{', '.join(missing)}]. {hint}"))
        return statuses

    def drop(self, group_id: str, context: Context) -> None:
        """Forget a group that has no members any more."""
        self._looks.pop(group_id, None)
        live = self._live.pop(group_id, None)
        if live is not None:
            self._offsets -= sum(one.count for one in live.offsets.values())
        context.timers.cancel(StreamsTimer(StreamsWatch.INITIAL, group_id))

    def _forget(self, group_id: str, member_id: str, context: Context) -> None:
        """A member is gone."""
        for watch in (StreamsWatch.SESSION, StreamsWatch.REBALANCE):
            context.timers.cancel(StreamsTimer(watch, group_id, member_id))
        live = self._live.get(group_id)
        if live is not None:
            self._offsets -= live.offsets.pop(member_id, NO_OFFSETS).count

    # ---------------------------------------------------------------------------------------------------------- leaving

    def _leave(self, group: StreamsGroup, message: StreamsGroupHeartbeatRequest, context: Context) -> CoordinatorResult:
        group_id, member_id, instance_id = group.group_id, message.member_id, message.instance_id
        member = group.members.get(member_id) if instance_id is None else group.static_member(instance_id)
        if instance_id is not None:
            member = _own_static(member, message)
        elif member is None:
            raise _unknown(group, member_id)
        answer = StreamsGroupHeartbeatResponse(member_id=member_id, member_epoch=message.member_epoch, status=[])
        if message.shutdown_application:
            live = self._live.setdefault(group_id, _Live({}))
            live.shutdown_by = live.shutdown_by or member_id
        if instance_id is not None and message.member_epoch == AWAY:
            draft = StreamsDraft(group)
            draft.assignment(replace(member, epoch=AWAY, assigned=_as_of_0(member.assigned), revoking=HOLDS_NOTHING))
            return CoordinatorResult(draft.records, Told(answer))
        return replace(self._fence(group, member, context), result=Told(answer))

    def _fence(self, group: StreamsGroup, member: StreamsMember, context: Context) -> CoordinatorResult:
        """Remove a member; the next heartbeat of another one assigns what it had."""
        draft = StreamsDraft(group)
        draft.end_member(member.member_id)
        draft.epoch(group.metadata_hash, group.validated_epoch, group.assignment_configs)
        if not draft.group.members:
            draft.target_epoch(draft.group.epoch, 0)
            self.drop(group.group_id, context)
        self._forget(group.group_id, member.member_id, context)
        return CoordinatorResult(draft.records)

    # ----------------------------------------------------------------------------------------------------------- timers

    def start(self, group: StreamsGroup, context: Context) -> CoordinatorResult:
        """Begin with a group whose log was loaded: each member has its full time from now on."""
        for member in group.members.values():
            self._watch(member, None, group, context)
        return NO_OPERATION

    def _watch(
        self, member: StreamsMember, before: StreamsMember | None, group: StreamsGroup, context: Context
    ) -> None:
        """Wait for the next heartbeat of a member; and for the end of a new revocation."""
        group_id, now_ms = group.group_id, context.now_ms
        session_ms = self.settings.session_ms(group_id, context.image)
        context.timers.set(StreamsTimer(StreamsWatch.SESSION, group_id, member.member_id), now_ms + session_ms)
        if before is not None and (before.state, before.epoch, before.assigned, before.revoking) == (
            member.state,
            member.epoch,
            member.assigned,
            member.revoking,
        ):
            return
        key = StreamsTimer(StreamsWatch.REBALANCE, group_id, member.member_id)
        if member.state is MemberState.UNREVOKED_TASKS:
            context.timers.set(key, now_ms + member.rebalance_timeout_ms)
        else:
            context.timers.cancel(key)

    def on_timer(self, group: StreamsGroup | None, key: StreamsTimer, context: Context) -> CoordinatorResult:
        """Remove a member that was silent or slow for too long, or compute the first targets."""
        if group is None:
            return NO_OPERATION
        if key.watch is StreamsWatch.INITIAL:
            return finished(self._assigning_first(group, context))
        member = group.members.get(key.member_id)
        if member is None:
            return NO_OPERATION
        if key.watch is StreamsWatch.REBALANCE and member.state is not MemberState.UNREVOKED_TASKS:
            return NO_OPERATION
        return self._fence(group, member, context)

    def _assigning_first(self, group: StreamsGroup, context: Context) -> Generator[None, None, CoordinatorResult]:
        """The first targets of a group, whose members have come meanwhile.

        A group of very many tasks leaves them to the next heartbeat, which has time for portions.
        """
        look = self._looks.get(group.group_id)
        if not group.members or look is None or look.configured.partitions >= STREAMS_PARTITIONS_AT_ONCE:
            return NO_OPERATION
        draft, told = StreamsDraft(group), self._told_offsets(group.group_id)
        yield from self._maybe_assigning(draft, look.configured, group.assignment_configs, told, context)
        return CoordinatorResult(draft.records)


def _matters(before: StreamsMember, after: StreamsMember) -> bool:
    """Whether what has changed of a static member gives the group new targets."""
    return (before.topology_epoch, before.rack_id, before.client_tags, before.process_id) != (
        *(after.topology_epoch, after.rack_id),
        *(after.client_tags, after.process_id),
    )


def _topology_of(draft: StreamsDraft, message: StreamsGroupHeartbeatRequest) -> StreamsGroupTopologyValue:
    """The topology of a group, which its first member brings; raises `ApiError` for another one of the same epoch."""
    known = draft.group.topology
    if message.topology is None:
        if known is None:
            # Only a log of which something was removed has such a group.
            raise ApiError(Error.UNKNOWN_SERVER_ERROR, "The topology is null and the group topology is also null.")
        return known
    given = recorded(message.topology)
    if known is None:
        draft.topology(given)
        assert draft.group.topology is not None, draft
        return draft.group.topology
    if known.epoch <= given.epoch and not are_same(known, given):
        raise ApiError(Error.INVALID_REQUEST, "Topology updates are not supported yet.")
    return known


def _unknown(group: StreamsGroup, member_id: str) -> ApiError:
    return ApiError(Error.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")


def _own_static(static: StreamsMember | None, message: StreamsGroupHeartbeatRequest) -> StreamsMember:
    """The static member, if the request comes from it; raises `ApiError`."""
    if static is None:
        raise ApiError(Error.UNKNOWN_MEMBER_ID, f"Instance id {message.instance_id} is unknown.")
    if static.member_id != message.member_id:
        text = f"Static member {message.member_id} with instance id {message.instance_id} was fenced by member"
        raise ApiError(Error.FENCED_INSTANCE_ID, f"{text} {static.member_id}.")
    return static


def _check_epoch(member: StreamsMember, epoch: int, owned: Tasks | None) -> None:
    """Raise `ApiError` if the epoch of a request is neither 0 nor that of the member.

    The epoch before is accepted of a member that owns no more than it has: the answer may have been lost.
    """
    if epoch in (0, member.epoch):
        return
    held = member.assigned
    if (
        epoch < member.epoch
        and epoch == member.previous_epoch
        and owned is not None
        and is_within(owned.active, held.active)
        and is_within(owned.standby, held.standby)
        and is_within(owned.warmup, held.warmup)
    ):
        return
    than = "greater" if epoch > member.epoch else "smaller"
    text = f"The streams group member has a {than} member epoch ({epoch}) than the one known by the group coordinator"
    raise ApiError(
        Error.FENCED_MEMBER_EPOCH, f"{text} ({member.epoch}). The member must abandon all its partitions and rejoin."
    )


def _as_of_0(held: HeldTasks) -> HeldTasks:
    """The tasks of a static member that is away: whoever comes back may commit for them with any epoch."""
    return replace(held, active={name: dict.fromkeys(epochs, 0) for name, epochs in held.active.items()})


def _task_member(member: StreamsMember, told: _Offsets) -> TaskMember:
    held = member.assigned
    return TaskMember(member.member_id, member.process_id, held.active, held.standby, told.offsets)


def _status(status: Status, text: str) -> messages.Status:
    return messages.Status(status.value, text)


def _told(tasks: Mapping[str, Iterable[int]]) -> list[StreamsGroupHeartbeatResponseTaskIds]:
    return [StreamsGroupHeartbeatResponseTaskIds(name, sorted(tasks[name])) for name in in_hash_map_order(tasks)]
