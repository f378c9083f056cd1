"""The five requests to a share coordinator (KIP-932), and what each asks of one share partition.

The messages differ in the names of their classes; a table says what each is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

from kraft.access.errors import ApiError
from kraft.coordinators.shares.persister import PersistedState, PersistedWrite, ShareKey, StateBatch, Summary
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages import delete_share_group_state as deleting
from transport.protocol.messages import initialize_share_group_state as initializing
from transport.protocol.messages import read_share_group_state as reading
from transport.protocol.messages import read_share_group_state_summary as summarizing
from transport.protocol.messages import write_share_group_state as writing


class Initialize(Struct, frozen=True):
    """Begin the state anew."""

    state_epoch: int
    start_offset: int


class Read(Struct, frozen=True):
    """Read the state as a leader."""

    leader_epoch: int


class ReadSummary(Struct, frozen=True):
    """Read how far the share partition is."""

    leader_epoch: int


class Delete(Struct, frozen=True):
    """Forget the share partition."""


Asked = Initialize | Read | PersistedWrite | ReadSummary | Delete
Found = PersistedState | Summary | None
"""The result where nothing went wrong."""


class Form(Struct, frozen=True):
    """The classes of one request and its answer, and how they are filled and read."""

    request: type[Message]
    topic: Callable[[Uuid, list[Any]], Any]
    part: Callable[[int, Any], Any]
    """One partition of a request."""
    asked: Callable[[Any], Asked]
    response: type[Message]
    topic_result: Callable[[Uuid, list[Any]], Any]
    result: Callable[..., Any]
    """One partition of an answer, of its number, the error and the text."""
    filled: Callable[[int, Any], Any]
    """One partition of an answer without an error."""
    found: Callable[[Any], Found]


def _nothing(_: Any) -> None:
    return None


FORMS: Final[Mapping[type[Message], Form]] = MappingProxyType(
    {
        form.request: form
        for form in (
            Form(
                request=initializing.InitializeShareGroupStateRequest,
                topic=initializing.InitializeStateData,
                part=lambda number, one: initializing.PartitionData(number, one.state_epoch, one.start_offset),
                asked=lambda part: Initialize(part.state_epoch, part.start_offset),
                response=initializing.InitializeShareGroupStateResponse,
                topic_result=initializing.InitializeStateResult,
                result=initializing.PartitionResult,
                filled=lambda number, _: initializing.PartitionResult(number),
                found=_nothing,
            ),
            Form(
                request=reading.ReadShareGroupStateRequest,
                topic=reading.ReadStateData,
                part=lambda number, one: reading.PartitionData(number, one.leader_epoch),
                asked=lambda part: Read(part.leader_epoch),
                response=reading.ReadShareGroupStateResponse,
                topic_result=reading.ReadStateResult,
                result=reading.PartitionResult,
                filled=lambda number, one: reading.PartitionResult(
                    partition=number,
                    state_epoch=one.state_epoch,
                    start_offset=one.start_offset,
                    state_batches=[reading.StateBatch(*_fields(batch)) for batch in one.batches],
                ),
                found=lambda part: PersistedState(
                    part.state_epoch, part.start_offset, tuple(StateBatch(*_fields(one)) for one in part.state_batches)
                ),
            ),
            Form(
                request=writing.WriteShareGroupStateRequest,
                topic=writing.WriteStateData,
                part=lambda number, one: writing.PartitionData(
                    partition=number,
                    state_epoch=one.state_epoch,
                    leader_epoch=one.leader_epoch,
                    start_offset=one.start_offset,
                    delivery_complete_count=one.delivery_complete_count,
                    state_batches=[writing.StateBatch(*_fields(batch)) for batch in one.batches],
                ),
                asked=lambda part: PersistedWrite(
                    part.state_epoch,
                    part.leader_epoch,
                    part.start_offset,
                    part.delivery_complete_count,
                    tuple(StateBatch(*_fields(one)) for one in part.state_batches),
                ),
                response=writing.WriteShareGroupStateResponse,
                topic_result=writing.WriteStateResult,
                result=writing.PartitionResult,
                filled=lambda number, _: writing.PartitionResult(number),
                found=_nothing,
            ),
            Form(
                request=summarizing.ReadShareGroupStateSummaryRequest,
                topic=summarizing.ReadStateSummaryData,
                part=lambda number, one: summarizing.PartitionData(number, one.leader_epoch),
                asked=lambda part: ReadSummary(part.leader_epoch),
                response=summarizing.ReadShareGroupStateSummaryResponse,
                topic_result=summarizing.ReadStateSummaryResult,
                result=summarizing.PartitionResult,
                filled=lambda number, one: summarizing.PartitionResult(
                    partition=number,
                    state_epoch=one.state_epoch,
                    leader_epoch=one.leader_epoch,
                    start_offset=one.start_offset,
                    delivery_complete_count=one.delivery_complete_count,
                ),
                found=lambda part: Summary(
                    part.state_epoch, part.leader_epoch, part.start_offset, part.delivery_complete_count
                ),
            ),
            Form(
                request=deleting.DeleteShareGroupStateRequest,
                topic=deleting.DeleteStateData,
                part=lambda number, _: deleting.PartitionData(number),
                asked=lambda _: Delete(),
                response=deleting.DeleteShareGroupStateResponse,
                topic_result=deleting.DeleteStateResult,
                result=deleting.PartitionResult,
                filled=lambda number, _: deleting.PartitionResult(number),
                found=_nothing,
            ),
        )
    }
)
"""The forms, by the class of the request."""
OF: Final[Mapping[type[Any], Form]] = MappingProxyType(
    {
        Initialize: FORMS[initializing.InitializeShareGroupStateRequest],
        Read: FORMS[reading.ReadShareGroupStateRequest],
        PersistedWrite: FORMS[writing.WriteShareGroupStateRequest],
        ReadSummary: FORMS[summarizing.ReadShareGroupStateSummaryRequest],
        Delete: FORMS[deleting.DeleteShareGroupStateRequest],
    }
)
"""The forms, by what is asked."""


def _fields(one: Any) -> tuple[int, int, int, int]:
    return one.first_offset, one.last_offset, one.delivery_state, one.delivery_count


def request_of(asked: Sequence[tuple[ShareKey, Asked]]) -> Message:
    """One request for share partitions of one group, of which the same kind of thing is asked."""
    form = OF[type(asked[0][1])]
    topics: dict[Uuid, list[Any]] = {}
    for key, one in asked:
        topics.setdefault(key.topic_id, []).append(form.part(key.partition, one))
    make: Any = form.request
    request: Message = make(
        group_id=asked[0][0].group_id, topics=[form.topic(topic_id, parts) for topic_id, parts in topics.items()]
    )
    return request


def answer_of(form: Form, results: Iterable[tuple[ShareKey, Found | ApiError]]) -> Message:
    """The answer with the results of all share partitions."""
    topics: dict[Uuid, list[Any]] = {}
    for key, result in results:
        if isinstance(result, ApiError):
            part = form.result(key.partition, result.error, str(result))
        else:
            part = form.filled(key.partition, result)
        topics.setdefault(key.topic_id, []).append(part)
    make: Any = form.response
    response: Message = make(results=[form.topic_result(topic_id, parts) for topic_id, parts in topics.items()])
    return response


def results_of(group_id: str, form: Form, message: Message | None) -> dict[ShareKey, Found | Error]:
    """The results in an answer, by share partition; none in another message."""
    answer: Any = message
    if not isinstance(message, form.response):
        return {}
    return {
        ShareKey(group_id, topic.topic_id, part.partition): Error.of(part.error_code) or form.found(part)
        for topic in answer.results
        for part in topic.partitions
    }
