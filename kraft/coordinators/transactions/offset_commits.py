"""TxnOffsetCommit: the offsets that a group has consumed become part of a transaction (KIP-98, KIP-447, KIP-890; Kafka:
`GroupCoordinatorService.commitTransactionalOffsets`).

The coordinator of the group asks that of the transaction first, as the leader of any other partition does. The offsets
count once the marker of the transaction is in their partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.errors import ApiError
from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups.offsets import MISSING_GROUPS_SINCE, Commit, Committer, commit
from kraft.coordinators.groups.shard import GroupShard
from kraft.coordinators.groups.state import GroupsState, Place
from kraft.coordinators.runtime.partition import TRANSLATED
from kraft.coordinators.runtime.parts import InParts
from kraft.coordinators.runtime.runtime import CoordinatorRuntime
from kraft.coordinators.runtime.shard import Context, CoordinatorResult
from kraft.coordinators.transactions.transaction_guards import Guard, TransactionGuards
from kraft.coordinators.transactions.verification import Asking, Transaction, Verified, Verifier
from kraft.handling.rights import Rights
from kraft.handling.settings import RequestSettings
from kraft.handling.steps import Handling, long_step
from kraft.limits import COMMITS_PER_STEP, PARTITIONS_PER_STEP, STEPS_PER_COMMIT
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages import txn_offset_commit as messages

IDS_SINCE: Final = 6
"""The first version with topic ids, and of clients that know the newer errors of groups."""
ADDS_SINCE: Final = 5
"""The first version that adds the partition of the group to the transaction."""
ABORTABLE_SINCE: Final = 4
"""The first version of clients that know TRANSACTION_ABORTABLE."""
LOADING_SINCE: Final = 2
"""The first version of clients that know COORDINATOR_LOAD_IN_PROGRESS."""
_SEQUENCE: Final = 0
_Named = tuple[str, Uuid, int]
"""A partition as a client names it: by the name of its topic, or by the id."""


class OffsetsOfTransaction(Struct):
    """A request, with what may be committed and the errors of the rest. It waits for a transaction coordinator."""

    request: WireRequest[messages.TxnOffsetCommitRequest]
    number: int
    """The partition of the group."""
    commits: dict[_Named, Commit]
    errors: dict[_Named, Error]
    guard: Guard | None = None
    asking: Asking | None = None
    timeout_ms = NEVER_MS

    @property
    def keys(self) -> tuple[Verified]:
        """The keys by which the request is woken."""
        return (Verified(self.request.request_id),)

    @property
    def message(self) -> messages.TxnOffsetCommitRequest:
        """The request itself."""
        return self.request.message


class TransactionOffsets(InParts[messages.TxnOffsetCommitRequest]):
    """The answer to TxnOffsetCommit, of which very many offsets have several operations."""

    def __init__(self, one: OffsetsOfTransaction, count: int) -> None:
        super().__init__(one.request, count)
        self.one = one

    def answer(self) -> Message:
        """The result for each offset."""
        return _response(self.one)


class CommitInTransaction(Struct):
    """Some offsets that become part of a transaction."""

    whole: TransactionOffsets
    committer: Committer
    part: dict[_Named, Commit]
    settings: GroupConfig
    guards: TransactionGuards
    runtime: CoordinatorRuntime[GroupsState]

    @property
    def request(self) -> WireRequest:
        """The request, of which this is a part."""
        return self.whole.request

    def decide(self, shard: GroupShard, context: Context) -> CoordinatorResult:
        """Commit them, if the transaction is still open."""
        one = self.whole.one
        known = self.runtime.active(one.number)
        assert not isinstance(known, Error), known
        self._check(known.part)
        found = commit(self.committer, self.part.values(), shard.classic, self.settings, context)
        if found.records:
            self.guards.on_records(known.part.key, one.message.producer_id, one.message.producer_epoch)
        return found

    def _check(self, part: HostedPartition) -> None:
        """Raise `ApiError` for offsets of a transaction that has ended, or of a producer that is fenced."""
        one = self.whole.one
        message = one.message
        producer = part.log.producers.states.producers.get(message.producer_id)
        if producer is not None and producer.epoch > message.producer_epoch:
            raise ApiError(Error.INVALID_PRODUCER_EPOCH)
        is_open = producer is not None and producer.open_offset is not None
        if one.guard is None or (is_open and producer is not None and producer.epoch == message.producer_epoch):
            return
        if not self.guards.holds(part.key, message.producer_id, one.guard):
            raise ApiError(Error.INVALID_TXN_STATE)

    def tell(self, result: Mapping[Place, Error]) -> Message | None:
        """The answer, after the last part."""
        one = self.whole.one
        for named, asked in self.part.items():
            one.errors[named] = _told(result[asked.topic, asked.partition], one.request.version)
        return self.whole.ended()

    def refuse(self, refused: ApiError) -> Message | None:
        """The answer with the error for each offset, after the last part."""
        one = self.whole.one
        one.errors |= dict.fromkeys(self.part, _told(refused.error, one.request.version))
        return self.whole.ended()


class TransactionOffsetsHandler:
    """Answers TxnOffsetCommit requests.

    Args:
        runtime: The groups that this broker coordinates.
        settings: The settings.
        rights: What clients may do.
        guards: The producers with a verification under way.
        verifier: What asks transaction coordinators.
    """

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupsState],
        settings: RequestSettings,
        rights: Rights,
        guards: TransactionGuards,
        verifier: Verifier,
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._rights = rights
        self._guards = guards
        self._verifier = verifier

    def begin(
        self, request: WireRequest[messages.TxnOffsetCommitRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer | OffsetsOfTransaction | None]:
        """Look at what may be committed, and ask the coordinator of the transaction."""
        message = request.message
        one = OffsetsOfTransaction(request, self._runtime.number_of(message.group_id), {}, {})
        refused = Error.NONE
        if not self._rights(request, AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, message.transactional_id):
            refused = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif not self._rights(request, AclOperation.READ, AclResource.GROUP, message.group_id):
            refused = Error.GROUP_AUTHORIZATION_FAILED
        for topic in message.topics:
            yield None
            yield from self._sort(one, topic, image, refused)
        if not one.commits:
            return _answered(one)
        if not message.group_id:
            return _answered(one, Error.INVALID_GROUP_ID)
        part = self._runtime.active(one.number)
        if isinstance(part, Error):
            return _answered(one, part)
        transaction = self._unverified(one, part.part)
        if transaction is None:
            return (yield from self._commit(one, now_ms))
        one.asking = self._verifier.ask(request.request_id, transaction, image, now_ms)
        return one

    def _sort(
        self,
        one: OffsetsOfTransaction,
        topic: messages.TxnOffsetCommitRequestTopic,
        image: MetadataImage,
        refused: Error,
    ) -> Handling[None]:
        """The partitions of a topic: those to commit, and the errors of the others."""
        topics, is_by_id = image.topics, one.request.version >= IDS_SINCE
        topic_id = topic.topic_id if is_by_id else topics.by_name.get(topic.name, Uuid.ZERO)
        known = topics.by_id.get(topic_id)
        name = topic.name if not is_by_id else "" if known is None else known.name
        if refused is Error.NONE:
            if is_by_id and known is None:
                refused = Error.UNKNOWN_TOPIC_ID
            elif not self._rights(one.request, AclOperation.READ, AclResource.TOPIC, name):
                refused = Error.TOPIC_AUTHORIZATION_FAILED
        count = 0 if known is None else len(known.partitions)
        for at, asked in enumerate(topic.partitions, 1):
            if at % PARTITIONS_PER_STEP == 0:
                yield None
            number = asked.partition_index
            named = topic.name, topic.topic_id, number
            if refused is not Error.NONE or not 0 <= number < count:
                one.errors[named] = refused or Error.UNKNOWN_TOPIC_OR_PARTITION
            else:
                metadata = asked.committed_metadata or ""
                offset, epoch = asked.committed_offset, asked.committed_leader_epoch
                one.commits[named] = Commit(name, topic_id, number, offset, epoch, metadata)

    def _unverified(self, one: OffsetsOfTransaction, part: HostedPartition) -> Transaction | None:
        """The question to the coordinator of transactions; None if nothing is to be verified."""
        message = one.message
        producer = part.log.producers.states.producers.get(message.producer_id)
        is_open = producer is not None and producer.open_offset is not None
        if not self._settings.verifies_transactions or (
            is_open and producer is not None and producer.epoch == message.producer_epoch
        ):
            return None
        adds = one.request.version >= ADDS_SINCE
        one.guard = self._guards.begin(part.key, message.producer_id, message.producer_epoch, _SEQUENCE, adds=adds)
        place = self._runtime.topic, one.number
        return Transaction(message.transactional_id, message.producer_id, message.producer_epoch, adds, (place,))

    def is_complete(self, waiting: OffsetsOfTransaction, image: MetadataImage) -> bool:
        """Whether the coordinator of transactions has answered."""
        return waiting.asking is not None and waiting.asking.errors is not None

    def end(
        self, waiting: OffsetsOfTransaction, image: MetadataImage, now_ms: int
    ) -> Handling[Answer | OffsetsOfTransaction | None]:
        """Commit what was verified."""
        place = self._runtime.topic, waiting.number
        errors: Mapping[Place, Error] = {} if waiting.asking is None else waiting.asking.errors or {}
        error = errors.get(place, Error.NETWORK_EXCEPTION)
        if error is not Error.NONE:
            return _answered(waiting, _verification_error(error, waiting.request.version))
        return (yield from self._commit(waiting, now_ms))

    def _commit(self, one: OffsetsOfTransaction, now_ms: int) -> Handling[Answer | None]:
        """Commit in parts; a request for very many partitions has several."""
        message = one.message
        committer = Committer(
            message.group_id,
            message.generation_id_or_member_epoch,
            message.member_id,
            message.group_instance_id,
            MISSING_GROUPS_SINCE,
            producer=(message.producer_id, message.producer_epoch),
        )
        every = list(one.commits.items())
        parts = [dict(every[begin : begin + COMMITS_PER_STEP]) for begin in range(0, len(every), COMMITS_PER_STEP)]
        whole = TransactionOffsets(one, len(parts))
        answer: Answer | None = None
        for part in parts:
            operation = CommitInTransaction(whole, committer, part, self._settings.groups, self._guards, self._runtime)
            answer = self._runtime.write(one.number, operation, now_ms)
            if part is not parts[-1]:
                yield from long_step(STEPS_PER_COMMIT)
        return answer


def _verification_error(error: Error, version: int) -> Error:
    """The error of the coordinator of transactions, as clients of the version understand it."""
    match error:
        case Error.PRODUCER_FENCED:
            return Error.INVALID_PRODUCER_EPOCH
        case Error.TRANSACTION_ABORTABLE if version < ABORTABLE_SINCE:
            return Error.INVALID_TXN_STATE
        case _:
            return _told(TRANSLATED.get(error, error), version)


def _told(error: Error, version: int) -> Error:
    """An error of a group, as clients of the version know it."""
    if error in (Error.GROUP_ID_NOT_FOUND, Error.STALE_MEMBER_EPOCH) and version < IDS_SINCE:
        return Error.ILLEGAL_GENERATION
    if error is Error.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_SINCE:
        return Error.COORDINATOR_NOT_AVAILABLE
    return error


def _answered(one: OffsetsOfTransaction, error: Error = Error.NONE) -> Answer:
    """The answer, with an error for all that would be committed."""
    one.errors |= dict.fromkeys(one.commits, _told(error, one.request.version))
    return Answer(one.request.request_id, _response(one))


def _response(one: OffsetsOfTransaction) -> messages.TxnOffsetCommitResponse:
    """The answers in Kafka's order: what the broker has refused, then what it has asked the coordinator."""
    topics = [
        ((topic.name, topic.topic_id), [asked.partition_index for asked in topic.partitions])
        for topic in one.message.topics
    ]
    if any((*named, number) not in one.commits for named, numbers in topics for number in numbers):
        merged: dict[tuple[str, Uuid], list[int]] = {}
        for is_refused in (True, False):
            for named, numbers in topics:
                for number in numbers:
                    if ((*named, number) in one.commits) is not is_refused:
                        merged.setdefault(named, []).append(number)
        topics = list(merged.items())
    return messages.TxnOffsetCommitResponse(
        topics=[
            messages.TxnOffsetCommitResponseTopic(
                *named,
                [messages.TxnOffsetCommitResponsePartition(number, one.errors[(*named, number)]) for number in numbers],
            )
            for named, numbers in topics
            if numbers
        ]
    )
