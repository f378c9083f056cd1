"""The requests of administrators about groups: DescribeGroups, ListGroups, DeleteGroups (Kafka: `KafkaApis`,
`GroupCoordinatorService`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.errors import ApiError
from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups.classic import ClassicGroups
from kraft.coordinators.groups.classic_group import CONSUMER, GroupState
from kraft.coordinators.groups.consumer.group import ConsumerGroup
from kraft.coordinators.groups.handler import GroupsHandler
from kraft.coordinators.groups.offsets import delete_group, delete_some
from kraft.coordinators.groups.shares.group import ShareGroup
from kraft.coordinators.groups.state import GroupsState, Place, share_group
from kraft.coordinators.groups.streams.group import PROTOCOL as STREAMS
from kraft.coordinators.groups.streams.group import StreamsGroup
from kraft.coordinators.runtime.partition import CoordinatorPartition
from kraft.coordinators.runtime.parts import InParts
from kraft.coordinators.runtime.runtime import CoordinatorRuntime
from kraft.coordinators.runtime.settings import Status
from kraft.coordinators.runtime.shard import Context, CoordinatorResult
from kraft.handling.orders import by_coordinator, in_partition_order, in_timeline_order, timeline_order, with_repeats
from kraft.handling.rights import Rights
from kraft.handling.steps import Handling, long_step
from kraft.limits import COMMITS_PER_STEP, GLANCES_PER_UNIT, GROUPS_PER_STEP, REPEATED_GROUPS, STEPS_PER_COMMIT
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.image.persistent_map import in_key_order_by_runs
from metadata_log.serde import Message
from transport.protocol.errors import Error
from transport.protocol.messages import delete_groups as deletions
from transport.protocol.messages import describe_groups as descriptions
from transport.protocol.messages import list_groups as lists

if TYPE_CHECKING:
    from kraft.coordinators.groups.shard import GroupShard

MISSING_SINCE: Final = 6
"""The version of DescribeGroups with an error for a group that does not exist."""
CLASSIC: Final = "classic"
SHARE: Final = "share"
_STATE_WORDS: Final = {"NotReady": "not_ready"}
"""The states whose word in a filter is not their name in small letters."""


DeleteShareGroup = Callable[["DeleteGroup", ShareGroup, "GroupShard", Context], CoordinatorResult]
"""Deletes a share group with the states of its share partitions, of which others know."""


class Deletions(InParts[deletions.DeleteGroupsRequest]):
    """The answer to DeleteGroups, of which each group is a part."""

    def __init__(
        self, request: WireRequest[deletions.DeleteGroupsRequest], asked: list[str], results: dict[str, Error]
    ) -> None:
        super().__init__(request, len(asked))
        self._names = [*asked, *results]
        self.results = results

    def answer(self) -> Message:
        """The groups by coordinator, and then those that the client may not delete."""
        return _deleted(self._names, self.results)


class DeleteGroup(Struct):
    """The deletion of one group."""

    whole: Deletions
    group_id: str
    delete_share_group: DeleteShareGroup

    @property
    def request(self) -> WireRequest:
        """The request, of which this is a part."""
        return self.whole.request

    def decide(self, shard: GroupShard, context: Context) -> CoordinatorResult:
        """Delete it, with the offsets that it still has, or the states of its share partitions."""
        group = share_group(context.state, self.group_id)
        if group is not None:
            return self.delete_share_group(self, group, shard, context)
        return delete_group(self.group_id, shard.classic, context)

    def tell(self, error: Error) -> Message | None:
        """The answer, after the last group."""
        self.whole.results[self.group_id] = error
        return self.whole.ended()

    def refuse(self, refused: ApiError) -> Message | None:
        """As `tell`."""
        return self.tell(refused.error)


class ForgetOffsets(Struct):
    """Some of the very many offsets of a group, before its deletion, which tells of any error."""

    group_id: str
    places: list[Place]
    request = None

    def decide(self, shard: GroupShard, context: Context) -> CoordinatorResult:
        """Forget them."""
        return delete_some(self.group_id, self.places, shard.classic, context)

    def tell(self, result: object) -> None:
        """Nobody has asked."""

    def refuse(self, refused: ApiError) -> None:
        """Nobody has asked."""


class GroupAdminHandler(GroupsHandler):
    """Answers administrators.

    Args:
        runtime: The coordinators of this broker.
        settings: The settings.
        rights: What clients may do.
        delete_share_group: Deletes a share group.
    """

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupsState],
        settings: GroupConfig,
        rights: Rights,
        delete_share_group: DeleteShareGroup,
    ) -> None:
        super().__init__(runtime, settings, rights)
        self._delete_share_group = delete_share_group

    def describe(
        self, request: WireRequest[descriptions.DescribeGroupsRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer]:
        """DescribeGroups: the groups that the client may not see, then the others by coordinator."""
        message = request.message
        denied, asked = list[descriptions.DescribedGroup](), list[str]()
        for number, group_id in enumerate(with_repeats(message.groups, REPEATED_GROUPS), 1):
            if self._rights(request, AclOperation.DESCRIBE, AclResource.GROUP, group_id):
                asked.append(group_id)
            else:
                denied.append(
                    descriptions.DescribedGroup(error_code=Error.GROUP_AUTHORIZATION_FAILED, group_id=group_id)
                )
            if number % GROUPS_PER_STEP == 0:
                yield None
        groups = denied
        for group_id in by_coordinator(asked, self._runtime.number_of, self._runtime.topic):
            groups.append(self._described(request, message, group_id))
            for _ in range(1 + len(groups[-1].members) // GROUPS_PER_STEP):
                yield None
        return Answer(request.request_id, descriptions.DescribeGroupsResponse(groups=groups))

    def _described(
        self, request: WireRequest, message: descriptions.DescribeGroupsRequest, group_id: str
    ) -> descriptions.DescribedGroup:
        known = self._runtime.readable(self._runtime.number_of(group_id))
        if isinstance(known, Error):
            return descriptions.DescribedGroup(error_code=known, group_id=group_id)
        asks = message.include_authorized_operations
        bits = self._rights.of(request).on_group(group_id) if asks else -(2**31)
        group = _classic(known).find(group_id, known.committed)
        if group is None:
            dead = GroupState.DEAD.value
            if request.version < MISSING_SINCE:
                return descriptions.DescribedGroup(group_id=group_id, group_state=dead, authorized_operations=bits)
            error, text = Error.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."
            return descriptions.DescribedGroup(error, text, group_id, dead)
        is_stable = group.state is GroupState.STABLE
        return descriptions.DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type,
            protocol_data=group.protocol or "" if is_stable else "",
            members=[
                descriptions.DescribedGroupMember(
                    one.member_id,
                    one.instance_id,
                    one.client_id,
                    one.client_host,
                    one.metadata(group.protocol) if is_stable else b"",
                    one.assignment,
                )
                for one in group.members.values()
            ],
            authorized_operations=bits,
        )

    def list(
        self, request: WireRequest[lists.ListGroupsRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer]:
        """ListGroups."""
        message = request.message
        sees_all = self._rights(request, AclOperation.DESCRIBE, AclResource.CLUSTER, is_asked=False)
        states = {one.lower() for one in message.states_filter}
        types = {one.lower() for one in message.types_filter}
        listed_groups: list[lists.ListedGroup] = []
        for number in in_partition_order(self._runtime.partitions, self._runtime.topic):
            known = self._runtime.partitions.get(number)
            if known is None or known.status is Status.FAILED:
                continue
            if not known.is_readable:
                return self.refuse_list(request, ApiError(Error.COORDINATOR_LOAD_IN_PROGRESS))
            state = known.committed
            looked_at = 0
            of_partition: list[lists.ListedGroup] = []
            for entry in in_key_order_by_runs(state.groups):
                if entry is None:
                    yield None
                    continue
                listed = _listed(known, state, entry[0])
                if (
                    (not states or _STATE_WORDS.get(listed.group_state, listed.group_state.lower()) in states)
                    and (not types or listed.group_type in types)
                    and (
                        sees_all
                        or self._rights(
                            request, AclOperation.DESCRIBE, AclResource.GROUP, listed.group_id, is_asked=False
                        )
                    )
                ):
                    of_partition.append(listed)
                # The state of a consumer group is that of all its members.
                looked_at += 1 + len(entry[1].members) // GLANCES_PER_UNIT
                if looked_at >= GROUPS_PER_STEP:
                    looked_at = 0
                    yield None
            listed_groups += yield from in_timeline_order(of_partition, _order)
            yield None
        return Answer(request.request_id, lists.ListGroupsResponse(groups=listed_groups))

    def delete(
        self, request: WireRequest[deletions.DeleteGroupsRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer | None]:
        """Answer DeleteGroups once each group was deleted, or was refused."""
        message = request.message
        results, asked = dict[str, Error](), list[str]()
        for number, group_id in enumerate(dict.fromkeys(message.groups_names), 1):
            if self._rights(request, AclOperation.DELETE, AclResource.GROUP, group_id):
                asked.append(group_id)
            else:
                results[group_id] = Error.GROUP_AUTHORIZATION_FAILED
            if number % GROUPS_PER_STEP == 0:
                yield None
        asked = by_coordinator(asked, self._runtime.number_of, self._runtime.topic)
        whole = Deletions(request, asked, results)
        if not asked:
            return Answer(request.request_id, whole.answer())
        answer: Answer | None = None
        for group_id in asked:
            answer = yield from self._delete(DeleteGroup(whole, group_id, self._delete_share_group), now_ms)
            yield None
        return answer

    def _delete(self, operation: DeleteGroup, now_ms: int) -> Handling[Answer | None]:
        """Delete a group; very many offsets are forgotten in operations of their own before."""
        group_id = operation.group_id
        number = self._runtime.number_of(group_id)
        known = self._runtime.active(number)
        if not isinstance(known, Error):
            places: list[Place] = []
            for place in known.state.places(group_id):
                if place is None:
                    yield None
                    continue
                places.append(place)
                if len(places) == COMMITS_PER_STEP:
                    self._runtime.write(number, ForgetOffsets(group_id, places), now_ms)
                    places = []
                    yield from long_step(STEPS_PER_COMMIT)
        return self._runtime.write(number, operation, now_ms)

    # The answers to requests that fail as a whole

    @staticmethod
    def refuse_describe(request: WireRequest[descriptions.DescribeGroupsRequest], refused: ApiError) -> Answer:
        """DescribeGroups with an error."""
        message = request.message
        groups = [descriptions.DescribedGroup(error_code=refused.error, group_id=one) for one in message.groups]
        return Answer(request.request_id, descriptions.DescribeGroupsResponse(groups=groups))

    @staticmethod
    def refuse_list(request: WireRequest, refused: ApiError) -> Answer:
        """ListGroups with an error."""
        return Answer(request.request_id, lists.ListGroupsResponse(error_code=refused.error))

    @staticmethod
    def refuse_delete(request: WireRequest[deletions.DeleteGroupsRequest], refused: ApiError) -> Answer:
        """DeleteGroups with an error."""
        message = request.message
        return Answer(
            request.request_id, _deleted(message.groups_names, dict.fromkeys(message.groups_names, refused.error))
        )


def _classic(known: CoordinatorPartition[GroupsState]) -> ClassicGroups:
    shard: Any = known.shard
    classic: ClassicGroups = shard.classic
    return classic


def _listed(known: CoordinatorPartition[GroupsState], state: GroupsState, group_id: str) -> lists.ListedGroup:
    live = _classic(known).live.get(group_id)
    if live is not None:
        return lists.ListedGroup(group_id, live.protocol_type, live.state.value, CLASSIC)
    recorded = state.groups[group_id]
    if isinstance(recorded, ConsumerGroup):
        return lists.ListedGroup(group_id, CONSUMER, recorded.state.value, CONSUMER)
    if isinstance(recorded, ShareGroup):
        return lists.ListedGroup(group_id, SHARE, recorded.state, SHARE)
    if isinstance(recorded, StreamsGroup):
        return lists.ListedGroup(group_id, STREAMS, recorded.state.value, STREAMS)
    group_state = GroupState.STABLE if recorded.members else GroupState.EMPTY
    return lists.ListedGroup(group_id, recorded.protocol_type, group_state.value, CLASSIC)


def _order(listed: lists.ListedGroup) -> int:
    return timeline_order(listed.group_id)


def _deleted(names: list[str], results: dict[str, Error]) -> deletions.DeleteGroupsResponse:
    return deletions.DeleteGroupsResponse(
        results=[deletions.DeletableGroupResult(name, results[name]) for name in names]
    )
