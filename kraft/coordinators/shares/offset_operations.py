"""Operations on the states of a share group that administrators ask for: other offsets, none, or no group any more
(Kafka: `GroupCoordinatorShard.initiateAlterShareGroupOffsets`, `initiateDeleteShareGroupOffsets`,
`sharePartitionDeleteRequests`).

Each has two halves with a record of states each. Between these the share coordinators are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from kraft.access.errors import ApiError
from kraft.coordinators.groups.shares import states
from kraft.coordinators.groups.shares.draft import ShareDraft, tombstones
from kraft.coordinators.groups.shares.group import NamedPartitions, ShareGroup
from kraft.coordinators.groups.shares.states import Beginning, Partitions
from kraft.coordinators.groups.state import share_group
from kraft.coordinators.runtime.partition import TRANSLATED
from kraft.coordinators.runtime.shard import HELD, Context, CoordinatorResult, Operation
from kraft.coordinators.shares.state_calls import Errors, SharePlace, StateCalls
from kraft.limits import SHARE_PARTITIONS_PER_GROUP
from kraft.wire import WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from transport.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from kraft.coordinators.groups.shard import GroupShard

GoOn = Callable[[Operation, int], None]
"""Does the second half of an operation, at a time in ms."""
_NOTHING_THERE = "There is no offset information to delete."


def may_change(group_id: str, shard: GroupShard, context: Context) -> ShareGroup | None:
    """The group of which an administrator changes states; None if there is none. Raises `ApiError`."""
    group = share_group(context.state, group_id)
    if group is None and shard.present(group_id, context.state) is not None:
        raise ApiError(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
    if group is not None and group.members:
        raise ApiError(Error.NON_EMPTY_GROUP, "The group is not empty.")
    return group


def _existing(group_id: str, shard: GroupShard, context: Context) -> ShareGroup:
    group = may_change(group_id, shard, context)
    if group is None:
        raise ApiError(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    return group


class _Half(Struct):
    """The end of an operation whose request was held."""

    request: WireRequest | None
    half: Callable[[GroupShard, Context], CoordinatorResult]
    answer: Callable[[Any], Message | None]
    refusal: Callable[[ApiError], Message | None]

    def decide(self, shard: GroupShard, context: Context) -> CoordinatorResult:
        """Find the second record of states."""
        return self.half(shard, context)

    def tell(self, result: Any) -> Message | None:
        """The answer."""
        return self.answer(result)

    def refuse(self, refused: ApiError) -> Message | None:
        """The error."""
        return self.refusal(refused)


def refuse_held(
    context: Context, request: WireRequest, error: Error, refuse: Callable[[ApiError], Message | None]
) -> None:
    """Answer a request whose first half could not be written."""
    message = refuse(ApiError(TRANSLATED.get(error, error)))
    if message is not None:
        context.answer(request, message)


# ---------------------------------------------------------------------------------------------------------------- alter


class AlterOffsets(Struct):
    """AlterShareGroupOffsets: the states of some share partitions begin anew at other offsets."""

    request: WireRequest[AlterShareGroupOffsetsRequest]
    denied: frozenset[str]
    """The topics that the client may not change."""
    calls: StateCalls
    go_on: GoOn

    def decide(self, shard: GroupShard, context: Context) -> CoordinatorResult:
        """Ask for the states, once it is written that they are asked for; a group that does not exist is made."""
        group_id, image = self.request.message.group_id, context.image
        group = may_change(group_id, shard, context)
        if group is None:
            shard.check_room(context)
            group = ShareGroup(group_id)
        starts: dict[Uuid, dict[int, int]] = {}
        for topic in self.request.message.topics:
            known = None if topic.topic_name in self.denied else image.topics.get(topic.topic_name)
            if known is not None:
                chosen = {
                    one.partition_index: one.start_offset
                    for one in topic.partitions
                    if 0 <= one.partition_index < len(known.partitions)
                }
                if chosen:
                    starts[known.id] = starts.get(known.id, {}) | chosen
        if not starts:
            return CoordinatorResult((), self._answer(image, {}))
        asked = [Beginning(topic_id, *one) for topic_id, of in sorted(starts.items()) for one in sorted(of.items())]
        if not self.calls.has_room(len(asked)):
            raise ApiError(Error.COORDINATOR_NOT_AVAILABLE, "Others ask for too many states. Ask again.")
        if states.count_of(group.states) + len(asked) > SHARE_PARTITIONS_PER_GROUP:
            raise ApiError(Error.INVALID_REQUEST, f"A group has at most {SHARE_PARTITIONS_PER_GROUP} share partitions.")
        wanted = {
            topic_id: NamedPartitions(image.topics.by_id[topic_id].name, tuple(sorted(of)))
            for topic_id, of in starts.items()
        }
        draft = ShareDraft(group)
        draft.states(states.with_initializing(group.states, wanted))
        epoch = group.epoch

        def ended(error: Error, context: Context) -> None:
            if error is Error.NONE:
                shard.shares.note_asked(group_id, context.now_ms)
                self.calls.initialize(
                    group_id, epoch, asked, lambda errors, now_ms: self._end(wanted, errors, now_ms), context.now_ms
                )
            else:
                refuse_held(context, self.request, error, self.refuse)

        return CoordinatorResult(draft.records, HELD, ended)

    def _end(self, wanted: Partitions, errors: Errors, now_ms: int) -> None:
        is_done = not any(errors.values())

        def half(shard: GroupShard, context: Context) -> CoordinatorResult:
            group = share_group(context.state, self.request.message.group_id)
            found = shard.shares.begun(group, wanted, context, is_done=is_done)
            return CoordinatorResult(found.records, self._answer(context.image, errors))

        self.go_on(_Half(self.request, half, self.tell, self.refuse), now_ms)

    def _answer(self, image: MetadataImage, errors: Mapping[SharePlace, Error]) -> Message:
        topics = []
        for topic in self.request.message.topics:
            known = image.topics.get(topic.topic_name)
            # Kafka tells the id of a topic also to those who may not read it.
            topic_id = Uuid.ZERO if known is None else known.id
            parts = []
            for one in topic.partitions:
                if topic.topic_name in self.denied:
                    error = Error.TOPIC_AUTHORIZATION_FAILED
                elif known is None or not 0 <= one.partition_index < len(known.partitions):
                    error = Error.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    error = errors.get((topic_id, one.partition_index), Error.NONE)
                text = _text(error)
                parts.append(AlterShareGroupOffsetsResponsePartition(one.partition_index, error, text))
            topics.append(AlterShareGroupOffsetsResponseTopic(topic.topic_name, topic_id, parts))
        return AlterShareGroupOffsetsResponse(responses=topics)

    def tell(self, result: Message) -> Message:
        """The answer."""
        return result

    def refuse(self, refused: ApiError) -> Message:
        """The error, which stands for all topics."""
        return refused_alteration(refused)


def refused_alteration(refused: ApiError) -> Message:
    """AlterShareGroupOffsets with an error."""
    text = refused.text or refused.error.message
    return AlterShareGroupOffsetsResponse(error_code=refused.error, error_message=text)


# --------------------------------------------------------------------------------------------------------------- delete


def places_of(group: ShareGroup, topic_ids: Iterable[Uuid], image: MetadataImage) -> list[SharePlace]:
    """All partitions of topics that have a state, or may have one. Of states whose deletion has failed it is not known
    any more which ones there are.
    """
    places: dict[SharePlace, None] = {}
    for topic_id in sorted(topic_ids):
        for topics in (group.states.initializing, group.states.initialized):
            if topic_id in topics:
                places |= dict.fromkeys((topic_id, number) for number in topics[topic_id].partitions)
        known = image.topics.by_id.get(topic_id)
        if topic_id in group.states.deleting and known is not None:
            places |= dict.fromkeys((topic_id, number) for number in range(len(known.partitions)))
    return list(places)


class DeleteOffsets(Struct):
    """DeleteShareGroupOffsets: the share partitions of some topics have no state any more."""

    request: WireRequest[DeleteShareGroupOffsetsRequest]
    denied: frozenset[str]
    calls: StateCalls
    go_on: GoOn

    def decide(self, shard: GroupShard, context: Context) -> CoordinatorResult:
        """Let the states be deleted, once it is written that they are to be."""
        group_id, image = self.request.message.group_id, context.image
        group = _existing(group_id, shard, context)
        answers, wanted = dict[str, DeleteShareGroupOffsetsResponseTopic](), dict[Uuid, str]()
        for topic in self.request.message.topics:
            name = topic.topic_name
            known = image.topics.get(name)
            if name in self.denied:
                answers[name] = _deleted(name, Uuid.ZERO, Error.TOPIC_AUTHORIZATION_FAILED)
            elif known is None:
                answers[name] = _deleted(name, Uuid.ZERO, Error.UNKNOWN_TOPIC_OR_PARTITION)
            elif states.is_in(group.states, (known.id,)):
                wanted[known.id] = name
            else:
                error = Error.UNKNOWN_TOPIC_OR_PARTITION
                answers[name] = DeleteShareGroupOffsetsResponseTopic(name, Uuid.ZERO, error, _NOTHING_THERE)
        places = places_of(group, wanted, image)
        if not places:
            return CoordinatorResult((), DeleteShareGroupOffsetsResponse(responses=list(answers.values())))
        if not self.calls.has_room(len(places)):
            raise ApiError(Error.COORDINATOR_NOT_AVAILABLE, "Others ask for too many states. Ask again.")
        draft = ShareDraft(group)
        draft.states(states.with_deleting(group.states, wanted))

        def done(errors: Errors, now_ms: int) -> None:
            failed = {topic_id: error for (topic_id, _), error in errors.items() if error}
            topics = [_deleted(name, topic_id, failed.get(topic_id, Error.NONE)) for topic_id, name in wanted.items()]
            answer = DeleteShareGroupOffsetsResponse(responses=[*topics, *answers.values()])
            gone = wanted.keys() - failed.keys()

            def half(_: GroupShard, context: Context) -> CoordinatorResult:
                return CoordinatorResult(without_states(group_id, gone, context).records, answer)

            self.go_on(_Half(self.request, half, self.tell, self.refuse), now_ms)

        def ended(error: Error, context: Context) -> None:
            if error is Error.NONE:
                self.calls.delete(group_id, places, done, context.now_ms)
            else:
                refuse_held(context, self.request, error, self.refuse)

        return CoordinatorResult(draft.records, HELD, ended)

    def tell(self, result: Message) -> Message:
        """The answer."""
        return result

    def refuse(self, refused: ApiError) -> Message:
        """The error, which stands for all topics."""
        return refused_deletion(refused)


def refused_deletion(refused: ApiError) -> Message:
    """DeleteShareGroupOffsets with an error."""
    text = refused.text or refused.error.message
    return DeleteShareGroupOffsetsResponse(error_code=refused.error, error_message=text)


def _text(error: Error) -> str | None:
    """The text of an error for administrators, which is Kafka's for a topic that does not exist; None for no error."""
    if error is Error.UNKNOWN_TOPIC_OR_PARTITION:
        return "This server does not host this topic-partition."
    return error.message if error else None


def _deleted(name: str, topic_id: Uuid, error: Error) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(name, topic_id, error, _text(error))


def without_states(group_id: str, gone: Iterable[Uuid], context: Context) -> CoordinatorResult:
    """Note that the states of topics are deleted."""
    group = share_group(context.state, group_id)
    if group is None:
        return CoordinatorResult()
    draft = ShareDraft(group)
    draft.states(states.without_deleting(group.states, frozenset(gone)))
    return CoordinatorResult(draft.records)


# -------------------------------------------------------------------------------------------------------------- a group


class DeletedGroup(Struct):
    """The deletion of a share group, for an operation that answers for it."""

    group_id: str
    calls: StateCalls
    go_on: GoOn
    operation: Any
    """The operation with the request, and what it answers."""

    def begin(self, group: ShareGroup, shard: GroupShard, context: Context) -> CoordinatorResult:
        """Let all states be deleted, and then write that the group ends."""
        if group.members:
            raise ApiError(Error.NON_EMPTY_GROUP)
        known = group.states
        topic_ids = {*known.initializing, *known.initialized, *known.deleting}
        places = places_of(group, topic_ids, context.image)
        if not places:
            return self._ending(group, shard)
        if not self.calls.has_room(len(places)):
            raise ApiError(Error.COORDINATOR_NOT_AVAILABLE)
        draft = ShareDraft(group)
        draft.states(states.with_deleting(known, topic_ids))

        def ended(error: Error, context: Context) -> None:
            if error is Error.NONE:
                self.calls.delete(self.group_id, places, self._on_deleted, context.now_ms)
            else:
                refuse_held(context, self.operation.request, error, self.operation.refuse)

        return CoordinatorResult(draft.records, HELD, ended)

    def _on_deleted(self, errors: Errors, now_ms: int) -> None:
        failed = next((error for error in errors.values() if error), Error.NONE)

        def half(shard: GroupShard, context: Context) -> CoordinatorResult:
            if failed:
                raise ApiError(failed)
            group = share_group(context.state, self.group_id)
            if group is None:
                raise ApiError(Error.GROUP_ID_NOT_FOUND)
            if group.members:
                raise ApiError(Error.NON_EMPTY_GROUP)
            return self._ending(group, shard)

        self.go_on(_Half(self.operation.request, half, self.operation.tell, self.operation.refuse), now_ms)

    def _ending(self, group: ShareGroup, shard: GroupShard) -> CoordinatorResult:
        def ended(error: Error, context: Context) -> None:
            if error is Error.NONE and self.group_id not in context.state.groups:
                shard.shares.drop(self.group_id)

        return CoordinatorResult(tombstones(group), Error.NONE, ended)
