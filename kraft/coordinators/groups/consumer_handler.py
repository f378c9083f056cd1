"""The requests of consumer groups: ConsumerGroupHeartbeat, ConsumerGroupDescribe (Kafka: `KafkaApis`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.errors import ApiError
from kraft.coordinators.groups.consumer.describe import described
from kraft.coordinators.groups.consumer.groups import check
from kraft.coordinators.groups.handler import GroupsHandler
from kraft.coordinators.groups.portions import Portions, in_portions
from kraft.coordinators.groups.state import consumer_group
from kraft.coordinators.runtime.runtime import refused
from kraft.coordinators.runtime.shard import Context, CoordinatorResult, refusing
from kraft.handling.orders import by_coordinator, with_repeats
from kraft.handling.rights import Rights
from kraft.handling.steps import Handling
from kraft.limits import GROUPS_PER_STEP, REPEATED_GROUPS
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
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


class ConsumerHeartbeat(Struct):
    """ConsumerGroupHeartbeat."""

    request: WireRequest[ConsumerGroupHeartbeatRequest]
    rights: Rights | None = None
    prepared: CoordinatorResult | ApiError | None = None

    def _may_describe(self, name: str) -> bool:
        """Whether the client may know of a topic."""
        rights = self.rights
        return rights is None or rights(self.request, AclOperation.DESCRIBE, AclResource.TOPIC, name, is_asked=False)

    def portions(self, shard: GroupShard, context: Context) -> Portions | None:
        """The same as `decide`, in several turns."""
        return shard.consumer_heartbeating(self.request, self._may_describe, context)

    def decide(self, shard: GroupShard, context: Context) -> CoordinatorResult:
        """Join, stay or leave."""
        if isinstance(self.prepared, ApiError):
            raise self.prepared
        return self.prepared or shard.consumer_heartbeat(self.request, self._may_describe, context)

    def tell(self, message: Message) -> Message:
        """The answer, which the group has made."""
        return message

    def refuse(self, refused: ApiError) -> Message:
        """The error."""
        return ConsumerGroupHeartbeatResponse(error_code=refused.error, error_message=refused.text)


class ConsumerGroupHandler(GroupsHandler):
    """Answers the members of consumer groups, and clients that describe the groups."""

    refuse_heartbeat = staticmethod(refusing(ConsumerHeartbeat))

    def heartbeat(
        self, request: WireRequest[ConsumerGroupHeartbeatRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer | None]:
        """ConsumerGroupHeartbeat."""
        message, operation = request.message, ConsumerHeartbeat(request, self._rights)
        error = self._refusal(request, message, image)
        if error is Error.NONE and not (yield from self._may_see(request, message.subscribed_topic_names or ())):
            error = Error.TOPIC_AUTHORIZATION_FAILED
        if error is not Error.NONE:
            return refused(operation, error)
        try:
            check(message, request.version, self._settings.consumer.assignors)
        except ApiError as bad:
            return Answer(request.request_id, operation.refuse(bad))
        operation.prepared = yield from in_portions(self._runtime, message.group_id, operation.portions, now_ms)
        return self._write(operation, message.group_id, Error.NONE, now_ms)

    def _refusal(self, request: WireRequest, message: ConsumerGroupHeartbeatRequest, image: MetadataImage) -> Error:
        if not self._is_enabled(image):
            return Error.UNSUPPORTED_VERSION
        if not self._rights(request, AclOperation.READ, AclResource.GROUP, message.group_id):
            return Error.GROUP_AUTHORIZATION_FAILED
        return Error.NONE

    def _is_enabled(self, image: MetadataImage) -> bool:
        """Whether the cluster and this broker let consumers use the protocol."""
        return "consumer" in self._settings.consumer.protocols and image.features.level(FEATURE) > 0

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
        group = self._committed(group_id, consumer_group, "consumer group")
        if isinstance(group, tuple):
            return DescribedGroup(*group, group_id)
        asks = message.include_authorized_operations
        bits = self._rights.of(request).on_group(group_id) if asks else -(2**31)
        description = yield from described(group, self._settings.consumer.assignors, image, bits)
        if not (yield from self._may_see(request, _topics_of(description))):
            text = "The group has described topic(s) that the client may not see."
            return DescribedGroup(Error.TOPIC_AUTHORIZATION_FAILED, text, group_id)
        return description

    # The answers to requests that fail as a whole

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
