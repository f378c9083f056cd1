"""The requests of brokers to the share coordinator (Kafka: `ShareCoordinatorService`, `KafkaApis`)."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.errors import ApiError
from kraft.coordinators.runtime.parts import InParts
from kraft.coordinators.runtime.runtime import CoordinatorRuntime
from kraft.coordinators.runtime.shard import Context, CoordinatorResult
from kraft.coordinators.shares.persister import PersistedWrite, ShareKey
from kraft.coordinators.shares.state import ShareStates
from kraft.coordinators.shares.state_messages import (
    FORMS,
    Asked,
    Delete,
    Form,
    Found,
    Initialize,
    Read,
    ReadSummary,
    answer_of,
)
from kraft.coordinators.shares.state_shard import ShareStateShard
from kraft.handling.coordinators import java_hash
from kraft.handling.rights import Rights
from kraft.handling.steps import Handling
from kraft.limits import GLANCES_PER_UNIT, NAME_CHARACTERS_PER_STEP, SHARE_STATES_PER_STEP
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from transport.protocol.errors import Error


def act(shard: ShareStateShard, key: ShareKey, asked: Asked, context: Context) -> CoordinatorResult:
    """Do what is asked of a share partition."""
    match asked:
        case Initialize(state_epoch, start_offset):
            return shard.initialize(key, state_epoch, start_offset, context)
        case Read(leader_epoch):
            return shard.read(key, leader_epoch, context)
        case PersistedWrite():
            return shard.write(key, asked, context)
        case ReadSummary():
            return shard.summary(key, context)
        case Delete():
            return shard.delete(key, context)


class StatesAnswer(InParts[Any]):
    """The answer to a request, of which each share partition is a part."""

    def __init__(self, request: WireRequest[Any], form: Form, keys: list[ShareKey]) -> None:
        super().__init__(request, len(keys))
        self._form = form
        self._keys = keys
        self._results: list[Found | ApiError] = [None] * len(keys)

    def note(self, at: int, result: Found | ApiError) -> Message | None:
        """Note the result of a share partition; returns the answer after the last."""
        self._results[at] = result
        return self.ended()

    def answer(self) -> Message:
        """The results of all share partitions."""
        return answer_of(self._form, zip(self._keys, self._results, strict=True))


class StatePart(Struct, frozen=True):
    """One share partition of a request."""

    answer: StatesAnswer
    at: int
    key: ShareKey
    asked: Asked

    @property
    def request(self) -> WireRequest:
        """The request, of which this is a part."""
        return self.answer.request

    def decide(self, shard: ShareStateShard, context: Context) -> CoordinatorResult:
        """Act on the share partition."""
        return act(shard, self.key, self.asked, context)

    def tell(self, result: Found) -> Message | None:
        """The answer, after the last share partition."""
        return self.answer.note(self.at, result)

    def refuse(self, refused: ApiError) -> Message | None:
        """As `tell`."""
        return self.answer.note(self.at, refused)


class ShareStatesHandler:
    """Answers the requests to the share coordinator.

    Args:
        runtime: The partitions of `__share_group_state` that this broker coordinates.
        rights: Whether a client may do something.
    """

    def __init__(self, runtime: CoordinatorRuntime[ShareStates], rights: Rights) -> None:
        self._runtime = runtime
        self._rights = rights

    def begin(self, request: WireRequest[Any], image: MetadataImage, now_ms: int) -> Handling[Answer | None]:
        """One of the five requests; each share partition is an operation of its own."""
        form, message = FORMS[type(request.message)], request.message
        parts = [(topic.topic_id, one) for topic in message.topics for one in topic.partitions]
        if not message.group_id or not parts:
            return Answer(request.request_id, answer_of(form, ()))
        if not self._rights(request, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER):
            return self.refuse(request, ApiError(Error.CLUSTER_AUTHORIZATION_FAILED))
        keys = [ShareKey(message.group_id, topic_id, part.partition) for topic_id, part in parts]
        whole = StatesAnswer(request, form, keys)
        answer: Answer | None = None
        # The name of a group may be long, and is hashed once.
        of_group = java_hash(message.group_id)
        for _ in range(len(message.group_id) // NAME_CHARACTERS_PER_STEP):
            yield None
        done = 0
        for at, (_, part) in enumerate(parts):
            if done >= SHARE_STATES_PER_STEP:
                yield None
                done = 0
            key, asked = keys[at], form.asked(part)
            done += 1
            if isinstance(asked, PersistedWrite):
                done += len(asked.batches) // GLANCES_PER_UNIT
            number = self._runtime.number_of_hash(java_hash(f":{key.topic_id}:{key.partition}", of_group))
            answer = self._runtime.write(number, StatePart(whole, at, key, asked), now_ms) or answer
        return answer

    def refuse(self, request: WireRequest[Any], refused: ApiError) -> Answer:
        """The answer with the same error for each share partition."""
        message = request.message
        keys = [
            ShareKey(message.group_id, topic.topic_id, one.partition)
            for topic in message.topics
            for one in topic.partitions
        ]
        return Answer(request.request_id, answer_of(FORMS[type(message)], ((key, refused) for key in keys)))
