"""The requests of share groups: ShareGroupHeartbeat, ShareGroupDescribe (Kafka: `KafkaApis`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.errors import ApiError
from kraft.coordinators.groups.handler import GroupsHandler
from kraft.coordinators.groups.portions import Portions, in_portions
from kraft.coordinators.groups.shares.describe import described
from kraft.coordinators.groups.shares.heartbeats import LONGEST_MEMBER_ID, check
from kraft.coordinators.groups.state import share_group
from kraft.coordinators.runtime.runtime import refused
from kraft.coordinators.runtime.shard import Context, CoordinatorResult, refusing
from kraft.handling.orders import by_coordinator, with_repeats
from kraft.handling.steps import Handling
from kraft.limits import GROUPS_PER_STEP, REPEATED_GROUPS
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from transport.protocol.errors import Error
from transport.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from transport.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from kraft.coordinators.groups.shard import GroupShard

FEATURE: Final = "share.version"


def is_enabled(image: MetadataImage) -> bool:
    """Whether the cluster has share groups."""
    return image.features.level(FEATURE) > 0


class ShareHeartbeat(Struct):
    """ShareGroupHeartbeat."""

    request: WireRequest[ShareGroupHeartbeatRequest]
    prepared: CoordinatorResult | ApiError | None = None

    def portions(self, shard: GroupShard, context: Context) -> Portions | None:
        """The same as `decide`, in several turns."""
        return shard.share_heartbeating(self.request, context)

    def decide(self, shard: GroupShard, context: Context) -> CoordinatorResult:
        """Join, stay or leave."""
        if isinstance(self.prepared, ApiError):
            raise self.prepared
        return self.prepared or shard.share_heartbeat(self.request, context)

    def tell(self, message: Message) -> Message:
        """The answer, which the group has made."""
        return message

    def refuse(self, refused: ApiError) -> Message:
        """The error."""
        return ShareGroupHeartbeatResponse(error_code=refused.error, error_message=refused.text)


class ShareGroupHandler(GroupsHandler):
    """Answers the members of share groups, and clients that describe the groups."""

    refuse_heartbeat = staticmethod(refusing(ShareHeartbeat))

    def heartbeat(
        self, request: WireRequest[ShareGroupHeartbeatRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer | None]:
        """ShareGroupHeartbeat."""
        message, operation = request.message, ShareHeartbeat(request)
        error = self._refusal(request, message, image)
        if error is Error.NONE and not (yield from self._may_see(request, message.subscribed_topic_names or ())):
            error = Error.TOPIC_AUTHORIZATION_FAILED
        if error is not Error.NONE:
            return refused(operation, error)
        try:
            check(message)
        except ApiError as bad:
            return Answer(request.request_id, operation.refuse(bad))
        operation.prepared = yield from in_portions(self._runtime, message.group_id, operation.portions, now_ms)
        return self._write(operation, message.group_id, Error.NONE, now_ms)

    def _refusal(self, request: WireRequest, message: ShareGroupHeartbeatRequest, image: MetadataImage) -> Error:
        if not is_enabled(image):
            return Error.UNSUPPORTED_VERSION
        if not self._rights(request, AclOperation.READ, AclResource.GROUP, message.group_id):
            return Error.GROUP_AUTHORIZATION_FAILED
        if not 0 < len(message.member_id) <= LONGEST_MEMBER_ID:
            return Error.INVALID_REQUEST
        return Error.NONE

    def describe(
        self, request: WireRequest[ShareGroupDescribeRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer]:
        """ShareGroupDescribe: the groups that are refused here, then the others by coordinator."""
        message = request.message
        denied, asked = list[DescribedGroup](), list[str]()
        for number, group_id in enumerate(with_repeats(message.group_ids, REPEATED_GROUPS), 1):
            error = self._refused(request, group_id, image)
            if error is Error.NONE:
                asked.append(group_id)
            else:
                denied.append(DescribedGroup(error, group_id=group_id))
            if number % GROUPS_PER_STEP == 0:
                yield None
        groups = denied
        for group_id in by_coordinator(asked, self._runtime.number_of, self._runtime.topic):
            groups.append((yield from self._described(request, message, group_id, image)))
            for _ in range(1 + len(groups[-1].members) // GROUPS_PER_STEP):
                yield None
        return Answer(request.request_id, ShareGroupDescribeResponse(groups=groups))

    def _refused(self, request: WireRequest, group_id: str, image: MetadataImage) -> Error:
        if not is_enabled(image):
            return Error.UNSUPPORTED_VERSION
        return self._rights.refused_group(request, AclOperation.DESCRIBE, group_id)

    def _described(
        self, request: WireRequest, message: ShareGroupDescribeRequest, group_id: str, image: MetadataImage
    ) -> Handling[DescribedGroup]:
        group = self._committed(group_id, share_group, "share group")
        if isinstance(group, tuple):
            return DescribedGroup(*group, group_id)
        asks = message.include_authorized_operations
        bits = self._rights.of(request).on_group(group_id) if asks else -(2**31)
        description = yield from described(group, image, bits)
        if not (yield from self._may_see(request, sorted(_topics_of(description)))):
            text = "The group has described topic(s) that the client may not see."
            return DescribedGroup(Error.TOPIC_AUTHORIZATION_FAILED, text, group_id)
        return description

    # The answers to requests that fail as a whole

    @staticmethod
    def refuse_describe(request: WireRequest[ShareGroupDescribeRequest], refused: ApiError) -> Answer:
        """ShareGroupDescribe with an error for each group."""
        message = request.message
        groups = [DescribedGroup(error_code=refused.error, group_id=one) for one in message.group_ids]
        return Answer(request.request_id, ShareGroupDescribeResponse(groups=groups))


def _topics_of(group: DescribedGroup) -> set[str]:
    names: set[str] = set()
    for member in group.members:
        names.update(member.subscribed_topic_names)
        names.update(one.topic_name for one in member.assignment.topic_partitions)
    return names
