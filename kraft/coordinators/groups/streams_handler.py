"""The requests of streams groups: StreamsGroupHeartbeat, StreamsGroupDescribe, StreamsGroupTopologyDescriptionUpdate
(Kafka: `KafkaApis`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.errors import ApiError
from kraft.access.topic_names import check_name
from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups.handler import GroupsHandler
from kraft.coordinators.groups.portions import Portions, in_portions
from kraft.coordinators.groups.state import GroupsState, streams_group
from kraft.coordinators.groups.streams.describe import described
from kraft.coordinators.groups.streams.heartbeats import Told
from kraft.coordinators.groups.streams.topology import InternalTopic, Status
from kraft.coordinators.groups.streams.wishes import check, check_size, topic_names
from kraft.coordinators.runtime.runtime import CoordinatorRuntime, refused
from kraft.coordinators.runtime.shard import Context, CoordinatorResult
from kraft.handling.coordinators import TOPICS
from kraft.handling.orders import by_coordinator, with_repeats
from kraft.handling.rights import Rights
from kraft.handling.steps import Handling
from kraft.limits import GROUPS_PER_STEP, REPEATED_GROUPS
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from transport.protocol.errors import Error
from transport.protocol.messages import streams_group_describe as descriptions
from transport.protocol.messages import streams_group_heartbeat as heartbeats
from transport.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from transport.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)

if TYPE_CHECKING:
    from kraft.coordinators.groups.shard import GroupShard

FEATURE: Final = "streams.version"
_NO_PLUGIN: Final = "The broker has no streams group topology description plugin configured."
_NOT_STORED: Final = 1
"""The status of a description that nobody keeps."""
_UNSEEN: Final = "The described group uses topics that the client is not authorized to describe."
_AS_THE_BROKER: Final = -1
_MOST_ERRORS: Final = 3
"""How many topics that could not be created an answer names."""
CreateTopics = Callable[[Sequence[CreatableTopic], WireRequest, int, int], dict[str, str]]
"""Asks for topics as the principal of a request, at a time in ms; returns why some could not be created a short while
ago (the number of ms), by name.
"""


class StreamsHeartbeat(Struct):
    """StreamsGroupHeartbeat."""

    request: WireRequest[heartbeats.StreamsGroupHeartbeatRequest]
    finish: Callable[[WireRequest, Told, int], Message]
    now_ms: int
    prepared: CoordinatorResult | ApiError | None = None

    def portions(self, shard: GroupShard, context: Context) -> Portions | None:
        """The same as `decide`, in several turns."""
        return shard.streams_heartbeating(self.request, context)

    def decide(self, shard: GroupShard, context: Context) -> CoordinatorResult:
        """Join, stay or leave."""
        if isinstance(self.prepared, ApiError):
            raise self.prepared
        return self.prepared or shard.streams_heartbeat(self.request, context)

    def tell(self, told: Told) -> Message:
        """The answer, which the group has made; internal topics that it lacks are asked for now."""
        return self.finish(self.request, told, self.now_ms)

    @staticmethod
    def refuse(refused: ApiError) -> Message:
        """The error."""
        return heartbeats.StreamsGroupHeartbeatResponse(error_code=refused.error, error_message=refused.text)


class StreamsGroupHandler(GroupsHandler):
    """Answers the members of streams groups, and clients that describe the groups.

    There is no plug-in that keeps descriptions of topologies, as in the broker that Kafka ships.

    Args:
        runtime: The coordinators of this broker.
        settings: The settings.
        rights: What clients may do.
        create: Asks for internal topics.
    """

    def __init__(
        self, runtime: CoordinatorRuntime[GroupsState], settings: GroupConfig, rights: Rights, create: CreateTopics
    ) -> None:
        super().__init__(runtime, settings, rights)
        self._create = create

    def _is_enabled(self, image: MetadataImage) -> bool:
        return "streams" in self._settings.consumer.protocols and image.features.level(FEATURE) > 0

    # ------------------------------------------------------------------------------------------------------- heartbeats

    def heartbeat(
        self, request: WireRequest[heartbeats.StreamsGroupHeartbeatRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer | None]:
        """StreamsGroupHeartbeat."""
        message, operation = request.message, StreamsHeartbeat(request, self._finish, now_ms)
        try:
            yield from self._checking(request, message, image)
            yield None
            check(message)
        except ApiError as bad:
            return Answer(request.request_id, operation.refuse(bad))
        if not message.group_id:
            return refused(operation, Error.INVALID_GROUP_ID)
        operation.prepared = yield from in_portions(self._runtime, message.group_id, operation.portions, now_ms)
        return self._write(operation, message.group_id, Error.NONE, now_ms)

    def _checking(
        self, request: WireRequest, message: heartbeats.StreamsGroupHeartbeatRequest, image: MetadataImage
    ) -> Handling[None]:
        """Raise `ApiError` for what the client may not do, or for names that are none, in steps."""
        if not self._is_enabled(image):
            raise ApiError(Error.UNSUPPORTED_VERSION)
        if not self._rights(request, AclOperation.READ, AclResource.GROUP, message.group_id):
            raise ApiError(Error.GROUP_AUTHORIZATION_FAILED)
        if message.topology is None:
            return
        check_size(message.topology)
        yield None
        names = topic_names(message.topology)
        prohibited = [name for name in names if name in TOPICS.values()]
        if prohibited:
            text = f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited."
            raise ApiError(Error.STREAMS_INVALID_TOPOLOGY, text)
        yield None
        invalid = [name for name in names if not _is_name(name)]
        if invalid:
            text = f"Topic names {','.join(invalid)} are not valid topic names."
            raise ApiError(Error.STREAMS_INVALID_TOPOLOGY, text)
        if not (yield from self._may_see(request, names)):
            raise ApiError(Error.TOPIC_AUTHORIZATION_FAILED)

    def _finish(self, request: WireRequest, told: Told, now_ms: int) -> Message:
        """The answer, after internal topics were asked for that the client may create."""
        answer = told.answer
        if not told.lacking:
            return answer
        names = [one.name for one in told.lacking]
        denied = list[str]()
        if not self._rights(request, AclOperation.CREATE, AclResource.CLUSTER, is_asked=False):
            denied = [one for one in names if not self._rights(request, AclOperation.CREATE, AclResource.TOPIC, one)]
        if denied:
            return _told_besides(answer, f"; Unauthorized to CREATE on topics {', '.join(denied)}.")
        topics = [_creatable(one) for one in told.lacking]
        errors = self._create(topics, request, now_ms, 2 * answer.heartbeat_interval_ms)
        if not errors:
            return answer
        listed = ", ".join(f"{name} ({text})" for name, text in list(errors.items())[:_MOST_ERRORS])
        rest = f" and {len(errors) - _MOST_ERRORS} more" if len(errors) > _MOST_ERRORS else ""
        return _told_besides(answer, f"; Creation failed: {listed}{rest}.")

    # ------------------------------------------------------------------------------------------------------ description

    def describe(
        self, request: WireRequest[descriptions.StreamsGroupDescribeRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer]:
        """StreamsGroupDescribe: the groups that are refused here, then the others by coordinator."""
        message = request.message
        denied, asked = list[descriptions.DescribedGroup](), list[str]()
        nameless: list[descriptions.DescribedGroup] = []
        for number, group_id in enumerate(with_repeats(message.group_ids, REPEATED_GROUPS), 1):
            error = self._refused(request, group_id, image)
            if error is Error.NONE:
                asked.append(group_id)
            else:
                refusals = nameless if error is Error.INVALID_GROUP_ID else denied
                refusals.append(descriptions.DescribedGroup(error, group_id=group_id))
            if number % GROUPS_PER_STEP == 0:
                yield None
        groups = denied + nameless
        for group_id in by_coordinator(asked, self._runtime.number_of, self._runtime.topic):
            groups.append((yield from self._described(request, message, group_id, image)))
            for _ in range(1 + len(groups[-1].members) // GROUPS_PER_STEP):
                yield None
        return Answer(request.request_id, descriptions.StreamsGroupDescribeResponse(groups=groups))

    def _refused(self, request: WireRequest, group_id: str, image: MetadataImage) -> Error:
        if not self._is_enabled(image):
            return Error.UNSUPPORTED_VERSION
        return self._rights.refused_group(request, AclOperation.DESCRIBE, group_id)

    def _described(
        self,
        request: WireRequest,
        message: descriptions.StreamsGroupDescribeRequest,
        group_id: str,
        image: MetadataImage,
    ) -> Handling[descriptions.DescribedGroup]:
        group = self._committed(group_id, streams_group, "streams group")
        if isinstance(group, tuple):
            return descriptions.DescribedGroup(*group, group_id)
        known = self._runtime.readable(self._runtime.number_of(group_id))
        assert not isinstance(known, Error), known
        streams = cast("GroupShard", known.shard).streams
        asks = message.include_authorized_operations
        bits = self._rights.of(request).on_group(group_id) if asks else -(2**31)
        description = yield from described(
            group, streams.ready_topology(group), lambda one: streams.offsets_of(group_id, one), bits
        )
        if not (yield from self._may_see(request, _topics_of(description))):
            return descriptions.DescribedGroup(Error.TOPIC_AUTHORIZATION_FAILED, _UNSEEN, group_id)
        if message.include_topology_description:
            return replace(description, topology_description_status=_NOT_STORED)
        return description

    # -------------------------------------------------------------------------------------- description of a topology

    def update_topology(
        self, request: WireRequest[StreamsGroupTopologyDescriptionUpdateRequest], image: MetadataImage, _now_ms: int
    ) -> Answer:
        """StreamsGroupTopologyDescriptionUpdate."""
        message = request.message
        if not self._is_enabled(image):
            return self.refuse_topology(request, ApiError(Error.UNSUPPORTED_VERSION))
        if not self._rights(request, AclOperation.READ, AclResource.GROUP, message.group_id):
            return self.refuse_topology(request, ApiError(Error.GROUP_AUTHORIZATION_FAILED))
        return self.refuse_topology(request, ApiError(Error.UNSUPPORTED_VERSION, _NO_PLUGIN))

    # The answers to requests that fail as a whole

    @staticmethod
    def refuse_heartbeat(request: WireRequest, refused: ApiError) -> Answer:
        """StreamsGroupHeartbeat with an error."""
        return Answer(request.request_id, StreamsHeartbeat.refuse(refused))

    @staticmethod
    def refuse_describe(request: WireRequest[descriptions.StreamsGroupDescribeRequest], refused: ApiError) -> Answer:
        """StreamsGroupDescribe with an error for each group."""
        message = request.message
        groups = [descriptions.DescribedGroup(error_code=refused.error, group_id=one) for one in message.group_ids]
        return Answer(request.request_id, descriptions.StreamsGroupDescribeResponse(groups=groups))

    @staticmethod
    def refuse_topology(request: WireRequest, refused: ApiError) -> Answer:
        """StreamsGroupTopologyDescriptionUpdate with an error."""
        return Answer(
            request.request_id,
            StreamsGroupTopologyDescriptionUpdateResponse(error_code=refused.error, error_message=refused.text),
        )


def _is_name(name: str) -> bool:
    try:
        check_name(name)
    except ApiError:
        return False
    return True


def _creatable(topic: InternalTopic) -> CreatableTopic:
    configs = [CreatableTopicConfig(key, value) for key, value in topic.configs.items()]
    return CreatableTopic(topic.name, topic.partitions, topic.replication_factor or _AS_THE_BROKER, [], configs)


def _told_besides(
    answer: heartbeats.StreamsGroupHeartbeatResponse, text: str
) -> heartbeats.StreamsGroupHeartbeatResponse:
    """The answer with more about the internal topics that are missing."""
    missing = Status.MISSING_INTERNAL_TOPICS
    statuses = [
        replace(one, status_detail=one.status_detail + text) if one.status_code == missing else one
        for one in answer.status or ()
    ]
    return replace(answer, status=statuses)


def _topics_of(group: descriptions.DescribedGroup) -> set[str]:
    names: set[str] = set()
    for one in () if group.topology is None else group.topology.subtopologies or ():
        names.update(one.source_topics, one.repartition_sink_topics)
        names.update(topic.name for topic in (*one.repartition_source_topics, *one.state_changelog_topics))
    return names
