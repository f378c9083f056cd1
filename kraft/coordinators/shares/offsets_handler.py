"""The requests of administrators about the offsets of share groups: DescribeShareGroupOffsets, AlterShareGroupOffsets,
DeleteShareGroupOffsets (Kafka: `KafkaApis`, `GroupCoordinatorService`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Final

from msgspec import Struct

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.errors import ApiError
from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups.handler import GroupsHandler
from kraft.coordinators.groups.state import GroupsState, share_group
from kraft.coordinators.runtime.runtime import CoordinatorRuntime
from kraft.coordinators.shares.group_handler import is_enabled
from kraft.coordinators.shares.log_ends import Ends, LogEnds
from kraft.coordinators.shares.offset_operations import (
    AlterOffsets,
    DeleteOffsets,
    refused_alteration,
    refused_deletion,
)
from kraft.coordinators.shares.persister import NO_COUNT, NO_OFFSET, Summary
from kraft.coordinators.shares.state_calls import StateCalls, Summaries
from kraft.handling.rights import Rights
from kraft.handling.steps import Handling
from kraft.limits import PARTITIONS_PER_STEP, SHARE_OFFSETS_PER_REQUEST
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages import describe_share_group_offsets as descriptions
from transport.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from transport.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest

NO_LAG: Final = -1
DESCRIBE_TIMEOUT_MS: Final = 60_000
"""The longest time for which the answers of share coordinators and leaders are waited for. They are some twice as
quick, also where nobody answers.
"""


class OffsetsTold(Struct, frozen=True, gc=False):
    """The key by which a description of offsets is woken."""

    request_id: int


class _Topic(Struct):
    """A topic of a described group: the partitions that are asked for."""

    name: str
    id: Uuid
    """Zero for a topic that does not exist, or that the client may not see."""
    partitions: list[int]
    error: Error = Error.NONE


class _Described(Struct):
    """A described group, and what is known of it so far."""

    group_id: str
    topics: list[_Topic]
    error: Error = Error.NONE
    text: str | None = None
    summaries: Summaries = {}
    ends: Ends = {}


class WaitingOffsets(Struct, eq=False):
    """A description that waits until all of `left` groups are known."""

    request: WireRequest[descriptions.DescribeShareGroupOffsetsRequest]
    groups: list[_Described]
    left: int
    timeout_ms: int = DESCRIBE_TIMEOUT_MS

    @property
    def keys(self) -> Iterator[Hashable]:
        """Its own key."""
        yield OffsetsTold(self.request.request_id)


class ShareOffsetsHandler(GroupsHandler):
    """Answers administrators.

    Args:
        runtime: The coordinators of this broker.
        settings: The settings.
        rights: What clients may do.
        calls: Asks the share coordinators.
        ends: Asks for the ends of logs.
        tell: Takes the key of what ends the wait of a request.
    """

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupsState],
        settings: GroupConfig,
        rights: Rights,
        calls: StateCalls,
        ends: LogEnds,
        tell: Callable[[Hashable], None],
    ) -> None:
        super().__init__(runtime, settings, rights)
        self._calls = calls
        self._ends = ends
        self._tell = tell

    # ------------------------------------------------------------------------------------------------------ description

    def describe(
        self, request: WireRequest[descriptions.DescribeShareGroupOffsetsRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer | WaitingOffsets]:
        """DescribeShareGroupOffsets: how far each share partition is, and how far behind the end of its log."""
        message = request.message
        groups, count = list[_Described](), 0
        for one in message.groups:
            group = yield from self._asked(request, one, image)
            count += sum(len(topic.partitions) for topic in group.topics)
            groups.append(group)
            yield None
        if count and not self._calls.has_room(count):
            return self.refuse_describe(request, ApiError(Error.COORDINATOR_NOT_AVAILABLE))
        waiting = WaitingOffsets(request, groups, len(groups))
        for group in groups:
            places = [
                (topic.id, number)
                for topic in group.topics
                if topic.id != Uuid.ZERO
                for number in dict.fromkeys(topic.partitions)
            ]
            if places:
                done = partial(self._on_summaries, waiting, group, image)
                self._calls.summaries(group.group_id, places, done, now_ms)
            else:
                waiting.left -= 1
        return waiting if waiting.left else (yield from self._answer(waiting))

    def _asked(
        self,
        request: WireRequest,
        one: descriptions.DescribeShareGroupOffsetsRequestGroup,
        image: MetadataImage,
    ) -> Handling[_Described]:
        """The partitions of one group that the request names, or all that have a state."""
        group_id = one.group_id
        if not is_enabled(image):
            return _Described(group_id, [], Error.UNSUPPORTED_VERSION)
        if not self._rights(request, AclOperation.DESCRIBE, AclResource.GROUP, group_id):
            return _Described(group_id, [], Error.GROUP_AUTHORIZATION_FAILED)
        if one.topics is None:
            return (yield from self._all(request, group_id, image))
        topics = []
        for number, asked in enumerate(one.topics, 1):
            topic = image.topics.get(asked.topic_name)
            found = _Topic(asked.topic_name, Uuid.ZERO if topic is None else topic.id, asked.partitions)
            if not self._rights(request, AclOperation.DESCRIBE, AclResource.TOPIC, asked.topic_name):
                found.id, found.error = Uuid.ZERO, Error.TOPIC_AUTHORIZATION_FAILED
            topics.append(found)
            if number % PARTITIONS_PER_STEP == 0:
                yield None
        return _Described(group_id, topics)

    def _all(self, request: WireRequest, group_id: str, image: MetadataImage) -> Handling[_Described]:
        """All topics of a group that the client may see, from its coordinator."""
        known = self._runtime.readable(self._runtime.number_of(group_id))
        if isinstance(known, Error):
            return _Described(group_id, [], known, known.message)
        group = share_group(known.committed, group_id)
        topics = []
        for topic_id, topic in sorted(group.states.initialized.items() if group is not None else ()):
            if self._rights(request, AclOperation.DESCRIBE, AclResource.TOPIC, topic.name, is_asked=False):
                topics.append(_Topic(topic.name, topic_id, list(topic.partitions)))
            yield None
        return _Described(group_id, topics)

    def _on_summaries(
        self, waiting: WaitingOffsets, group: _Described, image: MetadataImage, summaries: Summaries, now_ms: int
    ) -> None:
        group.summaries = summaries
        behind = [
            place
            for place, one in summaries.items()
            if isinstance(one, Summary) and one.start_offset != NO_OFFSET and one.delivery_complete_count != NO_COUNT
        ]
        self._ends.ask(behind, partial(self._on_ends, waiting, group), image, now_ms)

    def _on_ends(self, waiting: WaitingOffsets, group: _Described, ends: Ends, _: int) -> None:
        group.ends = ends
        waiting.left -= 1
        if not waiting.left:
            self._tell(OffsetsTold(waiting.request.request_id))

    @staticmethod
    def is_described(waiting: WaitingOffsets, _: MetadataImage) -> bool:
        """Whether everything is known."""
        return not waiting.left

    def end_description(self, waiting: WaitingOffsets, _image: MetadataImage, _now_ms: int) -> Handling[Answer]:
        """Answer a description, of which something may be missing."""
        if waiting.left:
            return self._unanswered(waiting)
        return self._answer(waiting)

    def _unanswered(self, waiting: WaitingOffsets) -> Handling[Answer]:
        yield None
        return self.refuse_describe(waiting.request, ApiError(Error.COORDINATOR_NOT_AVAILABLE))

    def _answer(self, waiting: WaitingOffsets) -> Handling[Answer]:
        groups = []
        for group in waiting.groups:
            topics = []
            for topic in group.topics:
                parts = []
                for count, number in enumerate(topic.partitions, 1):
                    parts.append(_partition(group, topic, number))
                    if count % PARTITIONS_PER_STEP == 0:
                        yield None
                topics.append(descriptions.DescribeShareGroupOffsetsResponseTopic(topic.name, topic.id, parts))
                yield None
            groups.append(
                descriptions.DescribeShareGroupOffsetsResponseGroup(group.group_id, topics, group.error, group.text)
            )
        return Answer(waiting.request.request_id, descriptions.DescribeShareGroupOffsetsResponse(groups=groups))

    @staticmethod
    def refuse_describe(
        request: WireRequest[descriptions.DescribeShareGroupOffsetsRequest], refused: ApiError
    ) -> Answer:
        """DescribeShareGroupOffsets with an error for each group."""
        groups = [
            descriptions.DescribeShareGroupOffsetsResponseGroup(one.group_id, [], refused.error, refused.text)
            for one in request.message.groups
        ]
        return Answer(request.request_id, descriptions.DescribeShareGroupOffsetsResponse(groups=groups))

    # ---------------------------------------------------------------------------------------------------------- changes

    def alter(
        self, request: WireRequest[AlterShareGroupOffsetsRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer | None]:
        """AlterShareGroupOffsets."""
        message = request.message
        denied = yield from self._denied(request, [one.topic_name for one in message.topics])
        operation = AlterOffsets(request, denied, self._calls, self._go_on(message.group_id))
        refusal = self._refusal(request, AclOperation.READ, message.group_id, image)
        if refusal is None and not message.group_id:
            refusal = Error.INVALID_GROUP_ID
        if refusal is None and sum([len(one.partitions) for one in message.topics]) > SHARE_OFFSETS_PER_REQUEST:
            text = f"A request alters the offsets of at most {SHARE_OFFSETS_PER_REQUEST} partitions."
            return Answer(request.request_id, operation.refuse(ApiError(Error.INVALID_REQUEST, text)))
        if refusal is not None:
            return Answer(request.request_id, operation.refuse(ApiError(refusal)))
        return self._write(operation, message.group_id, Error.NONE, now_ms)

    def delete(
        self, request: WireRequest[DeleteShareGroupOffsetsRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer | None]:
        """DeleteShareGroupOffsets."""
        message = request.message
        denied = yield from self._denied(request, [one.topic_name for one in message.topics])
        operation = DeleteOffsets(request, denied, self._calls, self._go_on(message.group_id))
        refusal = self._refusal(request, AclOperation.DELETE, message.group_id, image)
        if refusal is not None:
            return Answer(request.request_id, operation.refuse(ApiError(refusal)))
        return self._write(operation, message.group_id, Error.NONE, now_ms)

    def _go_on(self, group_id: str) -> Callable[..., None]:
        runtime = self._runtime
        return lambda operation, now_ms: runtime.go_on(runtime.number_of(group_id), operation, now_ms)

    def _refusal(
        self, request: WireRequest, operation: AclOperation, group_id: str, image: MetadataImage
    ) -> Error | None:
        if not is_enabled(image):
            return Error.UNSUPPORTED_VERSION
        if not self._rights(request, operation, AclResource.GROUP, group_id):
            return Error.GROUP_AUTHORIZATION_FAILED
        return None

    def _denied(self, request: WireRequest, names: list[str]) -> Handling[frozenset[str]]:
        """The topics that the client may not read."""
        denied = []
        for number, name in enumerate(dict.fromkeys(names), 1):
            if not self._rights(request, AclOperation.READ, AclResource.TOPIC, name):
                denied.append(name)
            if number % PARTITIONS_PER_STEP == 0:
                yield None
        return frozenset(denied)

    # The answers to requests that fail as a whole

    @staticmethod
    def refuse_alter(request: WireRequest[AlterShareGroupOffsetsRequest], refused: ApiError) -> Answer:
        """AlterShareGroupOffsets with an error."""
        return Answer(request.request_id, refused_alteration(refused))

    @staticmethod
    def refuse_delete(request: WireRequest[DeleteShareGroupOffsetsRequest], refused: ApiError) -> Answer:
        """DeleteShareGroupOffsets with an error."""
        return Answer(request.request_id, refused_deletion(refused))


def _partition(
    group: _Described, topic: _Topic, number: int
) -> descriptions.DescribeShareGroupOffsetsResponsePartition:
    """The answer for a partition. Kafka tells of no error but that of a missing right."""
    found = group.summaries.get((topic.id, number))
    if topic.error:
        return descriptions.DescribeShareGroupOffsetsResponsePartition(
            number, NO_OFFSET, 0, error_code=topic.error, error_message=topic.error.message
        )
    if not isinstance(found, Summary):
        return descriptions.DescribeShareGroupOffsetsResponsePartition(number, NO_OFFSET, 0)
    end = group.ends.get((topic.id, number))
    lag = NO_LAG
    if end is not None and not isinstance(end, Error):
        lag = end - found.start_offset - found.delivery_complete_count
    return descriptions.DescribeShareGroupOffsetsResponsePartition(number, found.start_offset, found.leader_epoch, lag)
