"""The requests for committed offsets: OffsetCommit, OffsetFetch, OffsetDelete (Kafka: `KafkaApis`,
`GroupCoordinatorService`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.errors import ApiError
from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups.consumer.commits import check_fetch
from kraft.coordinators.groups.consumer.group import ConsumerGroup
from kraft.coordinators.groups.handler import GroupsHandler
from kraft.coordinators.groups.offsets import NO_RETENTION, Commit, Committer, commit, delete_offsets, fetched
from kraft.coordinators.groups.state import NO_OFFSETS, GroupsState, Offset, Place
from kraft.coordinators.groups.streams.commits import check_fetch as check_streams_fetch
from kraft.coordinators.groups.streams.group import StreamsGroup
from kraft.coordinators.runtime.parts import InParts
from kraft.coordinators.runtime.runtime import refused
from kraft.coordinators.runtime.shard import Context, CoordinatorResult, refusing
from kraft.handling.orders import in_timeline_order, timeline_order, timeline_order_of_number
from kraft.handling.steps import Handling, long_step
from kraft.limits import COMMITS_PER_STEP, PARTITIONS_PER_STEP, REPEATED_GROUPS, REPEATED_OFFSETS, STEPS_PER_COMMIT
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.image.persistent_map import keys_in_order_by_runs
from metadata_log.serde import Message
from metadata_log.serde.codec import finished
from metadata_log.types import NO_OFFSET, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages import offset_commit as commits
from transport.protocol.messages import offset_delete as deletions
from transport.protocol.messages import offset_fetch as fetches

if TYPE_CHECKING:
    from kraft.coordinators.groups.shard import GroupShard

COMMIT_IDS_SINCE: Final = 10
RETENTION_UNTIL: Final = 4
"""The versions of OffsetCommit with topic ids, and with a retention time."""
GROUPS_SINCE: Final = 8
FETCH_IDS_SINCE: Final = 10
GROUP_ERRORS_SINCE: Final = 2
"""The versions of OffsetFetch with several groups, with topic ids, and with an error of the group."""


class _Named(Struct, frozen=True):
    """A topic as a client names it: by its name, or by its id."""

    name: str
    topic_id: Uuid


class CommitOffsets(Struct):
    """OffsetCommit of a few offsets, all at once."""

    request: WireRequest[commits.OffsetCommitRequest]
    answers: list[list[Commit | Error]]
    """For each partition the offset to commit, or the error for which it is refused."""
    valid: list[Commit]
    settings: GroupConfig

    def decide(self, shard: GroupShard, context: Context) -> CoordinatorResult:
        """Commit them."""
        return commit(_committer(self.request), self.valid, shard.classic, self.settings, context)

    def tell(self, result: Mapping[Place, Error]) -> Message:
        """The result for each offset."""
        return _commit_answer(self.request.message, self.answers, result)

    def refuse(self, refused: ApiError) -> Message:
        """The error for each offset."""
        return _commit_answer(self.request.message, self.answers, refused.error)


class CommitInParts(InParts[commits.OffsetCommitRequest]):
    """OffsetCommit of very many offsets, as many operations."""

    def __init__(
        self, request: WireRequest[commits.OffsetCommitRequest], count: int, answers: list[list[Commit | Error]]
    ) -> None:
        super().__init__(request, count)
        self._answers = answers
        self.results: dict[Place, Error] = {}

    def answer(self) -> Message:
        """The result for each offset."""
        return _commit_answer(self.request.message, self._answers, self.results)


class CommitPart(Struct):
    """Some of these offsets."""

    whole: CommitInParts
    committer: Committer
    part: list[Commit]
    settings: GroupConfig

    @property
    def request(self) -> WireRequest:
        """The request, of which this is a part."""
        return self.whole.request

    def decide(self, shard: GroupShard, context: Context) -> CoordinatorResult:
        """Commit them."""
        return commit(self.committer, self.part, shard.classic, self.settings, context)

    def tell(self, result: Mapping[Place, Error]) -> Message | None:
        """The answer, after the last part."""
        self.whole.results.update(result)
        return self.whole.ended()

    def refuse(self, refused: ApiError) -> Message | None:
        """As `tell`."""
        return self.tell({(one.topic, one.partition): refused.error for one in self.part})


class ReadOffsets(Struct):
    """The read of a group's offsets for OffsetFetch, once all that was written before is committed."""

    waiting: WaitingFetch
    wanted: _Wanted
    wake: Callable[[Hashable], None]
    request = None

    def decide(self, shard: GroupShard, context: Context) -> CoordinatorResult:
        """The state of the partition."""
        return CoordinatorResult(result=context.state)

    def tell(self, state: GroupsState) -> None:
        """Note the state; the request, which waits, is woken after the last group."""
        self.wanted.state = state
        self._ended()

    def refuse(self, refused: ApiError) -> None:
        """Note the error."""
        is_away = refused.error is Error.COORDINATOR_NOT_AVAILABLE
        self.wanted.error = Error.NOT_COORDINATOR if is_away else refused.error
        self._ended()

    def _ended(self) -> None:
        self.waiting.left -= 1
        if not self.waiting.left:
            self.wake(*self.waiting.keys)


class DeleteOffsets(Struct):
    """OffsetDelete."""

    request: WireRequest[deletions.OffsetDeleteRequest]
    valid: list[Place] = []
    errors: dict[Place, Error] = {}
    """Those of the partitions that do not exist, or that the client may not change."""

    def decide(self, shard: GroupShard, context: Context) -> CoordinatorResult:
        """Delete them."""
        return delete_offsets(self.request.message.group_id, self.valid, shard.classic, context)

    def tell(self, result: Mapping[Place, Error]) -> Message:
        """The result for each partition."""
        return _delete_answer(self.request.message, self.errors | dict(result))

    def refuse(self, refused: ApiError) -> Message:
        """The error."""
        return deletions.OffsetDeleteResponse(error_code=refused.error)


class OffsetsHandler(GroupsHandler):
    """Answers requests for offsets."""

    refuse_delete = staticmethod(refusing(DeleteOffsets))

    # ----------------------------------------------------------------------------------------------------------- commit

    def commit(
        self, request: WireRequest[commits.OffsetCommitRequest], image: MetadataImage, now_ms: int
    ) -> Answer | Handling[Answer | None] | None:
        """OffsetCommit. A request for very many partitions is committed in parts, unlike in Kafka, which refuses it.
        Most requests have a few, and fit a step: these are handled without a generator.
        """
        message = request.message
        if not self._rights(request, AclOperation.READ, AclResource.GROUP, message.group_id):
            return self.refuse_commit(request, ApiError(Error.GROUP_AUTHORIZATION_FAILED))
        if sum([1 + len(topic.partitions) for topic in message.topics]) > PARTITIONS_PER_STEP:
            return self._committing_many(request, image, now_ms)
        answers = [self._asked(request, image, topic, topic.partitions) for topic in message.topics]
        valid = [one for parts in answers for one in parts if isinstance(one, Commit)]
        if not valid:
            return Answer(request.request_id, _commit_answer(message, answers, {}))
        operation = CommitOffsets(request, answers, valid, self._settings)
        return self._runtime.write(self._runtime.number_of(message.group_id), operation, now_ms)

    def _committing_many(
        self, request: WireRequest[commits.OffsetCommitRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer | None]:
        """The steps of a request with many partitions."""
        message = request.message
        answers: list[list[Commit | Error]] = []
        for topic in message.topics:
            asked: list[Commit | Error] = []
            for begin in range(0, len(topic.partitions), PARTITIONS_PER_STEP):
                asked += self._asked(request, image, topic, topic.partitions[begin : begin + PARTITIONS_PER_STEP])
                yield None
            answers.append(asked)
        valid = [one for parts in answers for one in parts if isinstance(one, Commit)]
        if not valid:
            return Answer(request.request_id, _commit_answer(message, answers, {}))
        committer = _committer(request)
        parts = [valid[begin : begin + COMMITS_PER_STEP] for begin in range(0, len(valid), COMMITS_PER_STEP)]
        whole = CommitInParts(request, len(parts), answers)
        number = self._runtime.number_of(message.group_id)
        answer: Answer | None = None
        for part in parts:
            answer = self._runtime.write(number, CommitPart(whole, committer, part, self._settings), now_ms)
            if part is not parts[-1]:
                yield from long_step(STEPS_PER_COMMIT)
        return answer

    def _asked(
        self,
        request: WireRequest,
        image: MetadataImage,
        topic: commits.OffsetCommitRequestTopic,
        partitions: Sequence[commits.OffsetCommitRequestPartition],
    ) -> list[Commit | Error]:
        """For each of some partitions of a topic the offset to commit, or the error for which it is refused."""
        named = _Named(topic.name, topic.topic_id)
        error, name, topic_id = self._topic(request, image, named, by_id=request.version >= COMMIT_IDS_SINCE)
        if error is not Error.NONE:
            return [error] * len(partitions)
        count = len(image.topics.by_id[topic_id].partitions)
        return [
            Commit(
                name,
                topic_id,
                one.partition_index,
                one.committed_offset,
                one.committed_leader_epoch,
                one.committed_metadata or "",
            )
            if 0 <= one.partition_index < count
            else Error.UNKNOWN_TOPIC_OR_PARTITION
            for one in partitions
        ]

    def _topic(
        self,
        request: WireRequest,
        image: MetadataImage,
        named: _Named,
        *,
        by_id: bool,
        operation: AclOperation = AclOperation.READ,
    ) -> tuple[Error, str, Uuid]:
        """The error for which a client is refused a topic (NONE if it is not), the name of the topic, and its id."""
        topics = image.topics
        if by_id:
            if named.topic_id not in topics.by_id:
                return Error.UNKNOWN_TOPIC_ID, "", named.topic_id
            name, topic_id = topics.by_id[named.topic_id].name, named.topic_id
        else:
            name, topic_id = named.name, topics.by_name.get(named.name, Uuid.ZERO)
        if not self._rights(request, operation, AclResource.TOPIC, name):
            return Error.TOPIC_AUTHORIZATION_FAILED, name, topic_id
        return Error.NONE if topic_id in topics.by_id else Error.UNKNOWN_TOPIC_OR_PARTITION, name, topic_id

    # ------------------------------------------------------------------------------------------------------------ fetch

    def fetch(
        self, request: WireRequest[fetches.OffsetFetchRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer | WaitingFetch]:
        """OffsetFetch. Few groups, and partitions of a group, are answered again: an offset may have metadata."""
        message = request.message
        wanted: list[_Wanted] = []
        names: set[str] = set()
        repeated = 0
        for number, group in enumerate(_groups_of(request, message), 1):
            repeated += group.group_id in names
            if group.group_id not in names or repeated <= REPEATED_GROUPS:
                names.add(group.group_id)
                wanted.append((yield from self._wanted(request, image, group)))
            if number % PARTITIONS_PER_STEP == 0:
                yield None
        waiting = WaitingFetch(request, wanted, self._settings.commit_timeout_ms)
        for one in waiting.wanted:
            yield None
            if one.error is not Error.NONE:
                continue
            number = self._runtime.number_of(one.group_id)
            if message.require_stable:
                waiting.left += 1
                self._runtime.write(number, ReadOffsets(waiting, one, self._runtime.wake), now_ms)
                continue
            known = self._runtime.readable(number)
            if isinstance(known, Error):
                one.error = known
            else:
                one.state = known.committed
        return waiting if waiting.left else (yield from self.end_fetch(waiting, image, now_ms))

    def is_fetched(self, waiting: WaitingFetch, image: MetadataImage) -> bool:
        """Whether everything that was read is committed."""
        return not waiting.left

    def end_fetch(self, waiting: WaitingFetch, image: MetadataImage, now_ms: int) -> Handling[Answer]:
        """The answer, in steps: a group may have very many offsets."""
        request, message = waiting.request, waiting.request.message
        for one in waiting.wanted:
            if one.state is not None:
                yield from self._look(request, image, one, one.state, is_stable=message.require_stable)
            elif one.error is Error.NONE:
                one.error = Error.NOT_COORDINATOR
        return Answer(request.request_id, (yield from _fetch_answer(request, waiting.wanted)))

    def _wanted(
        self, request: WireRequest, image: MetadataImage, group: fetches.OffsetFetchRequestGroup
    ) -> Handling[_Wanted]:
        """The offsets that a client asks for of one group, with an error for each that it may not have."""
        wanted = _Wanted(group.group_id, group.member_id, group.member_epoch, has_all=group.topics is None)
        if not self._rights(request, AclOperation.DESCRIBE, AclResource.GROUP, group.group_id):
            wanted.error = Error.GROUP_AUTHORIZATION_FAILED
            wanted.has_all = False
            return wanted
        by_id = request.version >= FETCH_IDS_SINCE
        refused: list[_WantedTopic] = []
        seen: set[tuple[_Named, int]] = set()
        repeated = 0
        for topic in group.topics or ():
            named = _Named(topic.name, topic.topic_id)
            error, name, topic_id = self._topic(request, image, named, by_id=by_id, operation=AclOperation.DESCRIBE)
            if error is Error.UNKNOWN_TOPIC_OR_PARTITION:
                error = Error.NONE
            one = _WantedTopic(named, name, topic_id if by_id else None, error)
            (wanted.topics if error is Error.NONE else refused).append(one)
            yield None
            for count, number in enumerate(topic.partition_indexes, 1):
                repeated += (named, number) in seen
                if (named, number) not in seen or repeated <= REPEATED_OFFSETS:
                    seen.add((named, number))
                    one.numbers.append(number)
                if count % PARTITIONS_PER_STEP == 0:
                    yield None
        # Kafka asks the coordinator for the others, and adds these to its answer.
        wanted.topics += refused
        return wanted

    def _look(
        self, request: WireRequest, image: MetadataImage, wanted: _Wanted, state: GroupsState, *, is_stable: bool
    ) -> Handling[None]:
        """Find the offsets of a group."""
        group = state.groups.get(wanted.group_id)
        try:
            if isinstance(group, ConsumerGroup):
                check_fetch(group, wanted.member_id, wanted.member_epoch)
            elif isinstance(group, StreamsGroup):
                check_streams_fetch(group, wanted.member_id, wanted.member_epoch)
        except ApiError as refused:
            wanted.error = refused.error
            return
        by_id = request.version >= FETCH_IDS_SINCE
        if wanted.has_all:
            of_topics: dict[str, list[int]] = {}
            for count, place in enumerate(keys_in_order_by_runs(state.offsets.get(wanted.group_id, NO_OFFSETS)), 1):
                if place is None or count % PARTITIONS_PER_STEP == 0:
                    yield None
                if place is not None:
                    of_topics.setdefault(place[0], []).append(place[1])
            for name in (yield from in_timeline_order(list(of_topics), timeline_order)):
                topic_id = image.topics.by_name.get(name, Uuid.ZERO)
                yield None
                if by_id and topic_id is Uuid.ZERO:
                    continue
                if self._rights(request, AclOperation.DESCRIBE, AclResource.TOPIC, name, is_asked=False):
                    one = _WantedTopic(_Named(name, topic_id), name, topic_id if by_id else None)
                    one.numbers = yield from in_timeline_order(of_topics[name], timeline_order_of_number)
                    wanted.topics.append(one)
        for one in wanted.topics:
            if one.error is not Error.NONE:
                continue
            for count, number in enumerate(one.numbers, 1):
                found = fetched(state, wanted.group_id, (one.name, number), one.topic_id, is_stable=is_stable)
                one.found.append(found)
                if count % PARTITIONS_PER_STEP == 0:
                    yield None

    # ----------------------------------------------------------------------------------------------------------- delete

    def delete(
        self, request: WireRequest[deletions.OffsetDeleteRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer | None]:
        """OffsetDelete."""
        message = request.message
        if error := self._rights.refused_group(request, AclOperation.DELETE, message.group_id):
            return refused(DeleteOffsets(request), error)
        errors: dict[Place, Error] = {}
        valid: list[Place] = []
        looked_at = 0
        for topic in message.topics:
            named = _Named(topic.name, Uuid.ZERO)
            error, _, topic_id = self._topic(request, image, named, by_id=False)
            count = len(image.topics.by_id[topic_id].partitions) if error is Error.NONE else 0
            looked_at += 1
            for one in topic.partitions:
                place = topic.name, one.partition_index
                if error is Error.NONE and 0 <= one.partition_index < count:
                    valid.append(place)
                else:
                    errors[place] = error or Error.UNKNOWN_TOPIC_OR_PARTITION
                looked_at += 1
                if looked_at >= PARTITIONS_PER_STEP:
                    looked_at = 0
                    yield None
            if looked_at >= PARTITIONS_PER_STEP:
                looked_at = 0
                yield None
        if len(valid) > COMMITS_PER_STEP:
            return refused(DeleteOffsets(request), Error.INVALID_REQUEST)
        return self._write(DeleteOffsets(request, valid, errors), message.group_id, Error.NONE, now_ms)

    # ----------------------------------------------------------------- the answers to requests that fail as a whole

    @staticmethod
    def refuse_commit(request: WireRequest[commits.OffsetCommitRequest], refused: ApiError) -> Answer:
        """The answer to an OffsetCommit request with the same error for each partition."""
        message = request.message
        answers = [[refused.error] * len(topic.partitions) for topic in message.topics]
        return Answer(request.request_id, _commit_answer(message, answers, refused.error))

    @staticmethod
    def refuse_fetch(request: WireRequest[fetches.OffsetFetchRequest], refused: ApiError) -> Answer:
        """OffsetFetch with an error."""
        message = request.message
        names = dict.fromkeys(one.group_id for one in _groups_of(request, message))
        wanted = [_Wanted(name, error=refused.error) for name in names]
        return Answer(request.request_id, finished(_fetch_answer(request, wanted)))


class _WantedTopic(Struct):
    """A topic whose offsets a client wants, with the partitions and what was found of them."""

    named: _Named
    name: str
    topic_id: Uuid | None
    """The id that the topic must have had at the commit; None for any."""
    error: Error = Error.NONE
    numbers: list[int] = []
    found: list[Offset | Error | None] = []
    """One for each partition; empty while nobody has looked."""


class _Wanted(Struct):
    """The offsets of a group that a client wants."""

    group_id: str
    member_id: str | None = None
    member_epoch: int = -1
    has_all: bool = False
    """Whether the client wants every offset that there is."""
    error: Error = Error.NONE
    state: GroupsState | None = None
    """The state of the group's partition; None while that is not committed."""
    topics: list[_WantedTopic] = []


class OffsetsRead(Struct, frozen=True, gc=False):
    """The key by which a waiting OffsetFetch is woken."""

    request_id: int


class WaitingFetch(Struct):
    """An OffsetFetch that waits until what it has read is committed."""

    request: WireRequest[fetches.OffsetFetchRequest]
    wanted: list[_Wanted]
    timeout_ms: int
    left: int = 0
    """How many groups it waits for."""

    @property
    def keys(self) -> tuple[OffsetsRead]:
        """The keys by which the request is woken."""
        return (OffsetsRead(self.request.request_id),)


def _groups_of(request: WireRequest, message: fetches.OffsetFetchRequest) -> Iterable[fetches.OffsetFetchRequestGroup]:
    if request.version >= GROUPS_SINCE:
        return message.groups
    topics = (
        None
        if message.topics is None
        else [
            fetches.OffsetFetchRequestTopics(name=one.name, partition_indexes=one.partition_indexes)
            for one in message.topics
        ]
    )
    return (fetches.OffsetFetchRequestGroup(group_id=message.group_id, topics=topics),)


def _answered(found: Offset | Error | None) -> tuple[int, int, str, Error]:
    """Offset, epoch, metadata and error of a partition."""
    if isinstance(found, Offset):
        return found.offset, found.leader_epoch, found.metadata, Error.NONE
    return NO_OFFSET, NO_OFFSET, "", found or Error.NONE


def _fetch_answer(request: WireRequest, wanted: list[_Wanted]) -> Handling[fetches.OffsetFetchResponse]:
    if request.version >= GROUPS_SINCE:
        groups = []
        for one in wanted:
            topics = yield from _topics_of(one, fetches.OffsetFetchResponsePartitions)
            answers = [fetches.OffsetFetchResponseTopics(named.name, named.topic_id, parts) for named, parts in topics]
            groups.append(fetches.OffsetFetchResponseGroup(one.group_id, answers, one.error))
        return fetches.OffsetFetchResponse(groups=groups)
    (one,) = wanted
    topics = yield from _topics_of(
        one, fetches.OffsetFetchResponsePartition, is_told_each=request.version < GROUP_ERRORS_SINCE
    )
    named_topics = [fetches.OffsetFetchResponseTopic(named.name, parts) for named, parts in topics]
    return fetches.OffsetFetchResponse(topics=named_topics, error_code=one.error)


def _topics_of(
    one: _Wanted, made: Callable[..., Any], *, is_told_each: bool = False
) -> Handling[list[tuple[_Named, list[Any]]]]:
    """The topics of a group with the answers for their partitions; none if the group itself has an error, unless each
    partition is to be told.
    """
    if one.error is not Error.NONE and not is_told_each:
        return []
    topics = []
    for topic in one.topics:
        parts = []
        for at, number in enumerate(topic.numbers):
            offset, epoch, metadata, error = _answered(topic.found[at] if topic.found else topic.error)
            parts.append(made(number, offset, epoch, metadata, one.error or error))
            if at % PARTITIONS_PER_STEP == 0:
                yield None
        topics.append((topic.named, parts))
        yield None
    return topics


def _committer(request: WireRequest[commits.OffsetCommitRequest]) -> Committer:
    """The member or the client that commits, as the request names it."""
    message = request.message
    return Committer(
        message.group_id,
        message.generation_id_or_member_epoch,
        message.member_id,
        message.group_instance_id,
        request.version,
        message.retention_time_ms if request.version <= RETENTION_UNTIL else NO_RETENTION,
    )


def _commit_answer(
    message: commits.OffsetCommitRequest,
    answers: Sequence[Sequence[Commit | Error]],
    result: Error | Mapping[Place, Error],
) -> commits.OffsetCommitResponse:
    """The answer to a commit.

    Args:
        message: The request.
        answers: By topic what was committed of each of its partitions, or why not.
        result: What came of what was committed; an error if all of it failed.
    """
    topics = []
    is_whole = True
    for topic, parts in zip(message.topics, answers, strict=True):
        told = []
        for asked, one in zip(topic.partitions, parts, strict=True):
            if not isinstance(one, Commit):
                error, is_whole = one, False
            else:
                error = result if isinstance(result, Error) else result[one.topic, one.partition]
            told.append(commits.OffsetCommitResponsePartition(asked.partition_index, error))
        topics.append(commits.OffsetCommitResponseTopic(topic.name, topic.topic_id, told))
    if is_whole:
        return commits.OffsetCommitResponse(topics=[one for one in topics if one.partitions])
    return commits.OffsetCommitResponse(topics=_refused_first(topics, answers))


def _refused_first(
    topics: Sequence[commits.OffsetCommitResponseTopic], answers: Sequence[Sequence[Commit | Error]]
) -> list[commits.OffsetCommitResponseTopic]:
    """The answers in Kafka's order, by topic: what the broker has refused, then what it has asked the coordinator."""
    merged: dict[_Named, list[commits.OffsetCommitResponsePartition]] = {}
    for is_refused in (True, False):
        for topic, parts in zip(topics, answers, strict=True):
            for told, one in zip(topic.partitions, parts, strict=True):
                if isinstance(one, Commit) is not is_refused:
                    merged.setdefault(_Named(topic.name, topic.topic_id), []).append(told)
    return [commits.OffsetCommitResponseTopic(named.name, named.topic_id, parts) for named, parts in merged.items()]


def _delete_answer(
    message: deletions.OffsetDeleteRequest, errors: dict[Place, Error]
) -> deletions.OffsetDeleteResponse:
    return deletions.OffsetDeleteResponse(
        topics=[
            deletions.OffsetDeleteResponseTopic(
                topic.name,
                [
                    deletions.OffsetDeleteResponsePartition(
                        one.partition_index, errors[topic.name, one.partition_index]
                    )
                    for one in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )
