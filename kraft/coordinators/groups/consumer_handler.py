"""The requests of consumer groups: ConsumerGroupHeartbeat, ConsumerGroupDescribe (Kafka: `KafkaApis`)."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final, cast

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.errors import ApiError
from kraft.config.group_settings import ConsumerGroupConfig
from kraft.coordinators.groups.consumer.describe import described
from kraft.coordinators.groups.consumer.groups import check
from kraft.coordinators.groups.portions import in_portions
from kraft.coordinators.groups.state import GroupsState, consumer_group
from kraft.coordinators.runtime.runtime import CoordinatorRuntime
from kraft.coordinators.runtime.shard import Context, Operation
from kraft.handling.orders import by_coordinator, with_repeats
from kraft.handling.rights import Rights
from kraft.handling.steps import Handling
from kraft.limits import GROUPS_PER_STEP, REPEATED_GROUPS
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from transport.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from kraft.coordinators.groups.shard import GroupShard

FEATURE: Final = "group.version"


class ConsumerGroupHandler:
    """Answers the members of consumer groups, and clients that describe the groups.

    Args:
        runtime: The coordinators of this broker.
        settings: The settings.
        rights: What clients may do.
    """

    def __init__(self, runtime: CoordinatorRuntime[GroupsState], settings: ConsumerGroupConfig, rights: Rights) -> None:
        self._runtime = runtime
        self._settings = settings
        self._rights = rights

    def heartbeat(
        self, request: WireRequest[ConsumerGroupHeartbeatRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer | None]:
        """ConsumerGroupHeartbeat."""
        message = request.message
        error = self._refusal(request, message, image)
        for number, name in enumerate(message.subscribed_topic_names or () if error is Error.NONE else (), 1):
            if not self._rights(request, AclOperation.DESCRIBE, AclResource.TOPIC, name):
                error = Error.TOPIC_AUTHORIZATION_FAILED
                break
            if number % GROUPS_PER_STEP == 0:
                yield None
        if error is not Error.NONE:
            return Answer(request.request_id, _refused_heartbeat(error))
        try:
            check(message, request.version, self._settings.assignors)
        except ApiError as refused:
            return self.refuse_heartbeat(request, refused)

        def may_describe(name: str) -> bool:
            return self._rights(request, AclOperation.DESCRIBE, AclResource.TOPIC, name, is_asked=False)

        def begin(shard: GroupShard, context: Context) -> Generator[None, None, Operation] | None:
            return shard.consumer_heartbeating(request, may_describe, context)

        prepared = yield from in_portions(self._runtime, message.group_id, begin, now_ms)

        def operate(shard: GroupShard, context: Context) -> Operation:
            if isinstance(prepared, ApiError):
                raise prepared
            return prepared or shard.consumer_heartbeat(request, may_describe, context)

        return self._runtime.write(
            self._runtime.number_of(message.group_id),
            request,
            operate,
            lambda refused: _refused_heartbeat(refused.error, refused.text),
            now_ms,
        )

    def _refusal(self, request: WireRequest, message: ConsumerGroupHeartbeatRequest, image: MetadataImage) -> Error:
        if not self._is_enabled(image):
            return Error.UNSUPPORTED_VERSION
        if not self._rights(request, AclOperation.READ, AclResource.GROUP, message.group_id):
            return Error.GROUP_AUTHORIZATION_FAILED
        return Error.NONE

    def _is_enabled(self, image: MetadataImage) -> bool:
        """Whether the cluster and this broker let consumers use the protocol."""
        return "consumer" in self._settings.protocols and image.features.level(FEATURE) > 0

    def describe(
        self, request: WireRequest[ConsumerGroupDescribeRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer]:
        """ConsumerGroupDescribe: the groups that are refused here, then the others by coordinator."""
        message = request.message
        denied, unnamed, asked = list[DescribedGroup](), list[DescribedGroup](), list[str]()
        for number, group_id in enumerate(with_repeats(message.group_ids, REPEATED_GROUPS), 1):
            match self._refused(request, group_id, image):
                case Error.NONE:
                    asked.append(group_id)
                case Error.INVALID_GROUP_ID:
                    unnamed.append(DescribedGroup(Error.INVALID_GROUP_ID))
                case error:
                    denied.append(DescribedGroup(error, group_id=group_id))
            if number % GROUPS_PER_STEP == 0:
                yield None
        groups = [*denied, *unnamed]
        for group_id in by_coordinator(asked, self._runtime.number_of, self._runtime.topic):
            groups.append((yield from self._described(request, message, group_id, image)))
            for _ in range(1 + len(groups[-1].members) // GROUPS_PER_STEP):
                yield None
        return Answer(request.request_id, ConsumerGroupDescribeResponse(groups=groups))

    def _refused(self, request: WireRequest, group_id: str, image: MetadataImage) -> Error:
        if not self._is_enabled(image):
            return Error.UNSUPPORTED_VERSION
        return self._rights.refused_group(request, AclOperation.DESCRIBE, group_id)

    def _described(
        self, request: WireRequest, message: ConsumerGroupDescribeRequest, group_id: str, image: MetadataImage
    ) -> Handling[DescribedGroup]:
        def refused(error: Error, text: str | None = None) -> DescribedGroup:
            return DescribedGroup(error, text, group_id)

        known = self._runtime.readable(self._runtime.number_of(group_id))
        if isinstance(known, Error):
            return refused(known)
        group = consumer_group(known.committed, group_id)
        if group is None:
            other = cast("GroupShard", known.shard).present(group_id, known.committed)
            what = "not found" if other is None else "is not a consumer group"
            return refused(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        asks = message.include_authorized_operations
        bits = self._rights.of(request).on_group(group_id) if asks else -(2**31)
        description = yield from described(group, self._settings.assignors, image, bits)
        for name in _topics_of(description):
            if not self._rights(request, AclOperation.DESCRIBE, AclResource.TOPIC, name):
                return refused(
                    Error.TOPIC_AUTHORIZATION_FAILED, "The group has described topic(s) that the client may not see."
                )
        return description

    # The answers to requests that fail as a whole

    @staticmethod
    def refuse_heartbeat(request: WireRequest, refused: ApiError) -> Answer:
        """ConsumerGroupHeartbeat with an error."""
        return Answer(request.request_id, _refused_heartbeat(refused.error, refused.text))

    @staticmethod
    def refuse_describe(request: WireRequest[ConsumerGroupDescribeRequest], refused: ApiError) -> Answer:
        """ConsumerGroupDescribe with an error for each group."""
        message = request.message
        groups = [DescribedGroup(error_code=refused.error, group_id=one) for one in message.group_ids]
        return Answer(request.request_id, ConsumerGroupDescribeResponse(groups=groups))


def _topics_of(group: DescribedGroup) -> set[str]:
    names: set[str] = set()
    for member in group.members:
        names.update(member.subscribed_topic_names)
        for assignment in (member.assignment, member.target_assignment):
            names.update(one.topic_name for one in assignment.topic_partitions)
    return names


def _refused_heartbeat(error: Error, text: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error, error_message=text)
