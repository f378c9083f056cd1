"""Groups as their coordinators describe them, for the types that have a request of their own (KIP-848, 932, 1071)."""

from __future__ import annotations

from typing import Final, TypeVar

from kraft.client.questions import Questions
from kraft.client.state.coordinators import KeyType
from kraft.client.state.errors import ClientError, refused
from transport.protocol.errors import Error
from transport.protocol.inbound import Cause
from transport.protocol.messages import consumer_group_describe, share_group_describe, streams_group_describe

_Request = (
    consumer_group_describe.ConsumerGroupDescribeRequest
    | share_group_describe.ShareGroupDescribeRequest
    | streams_group_describe.StreamsGroupDescribeRequest
)
_Answer = TypeVar(
    "_Answer",
    consumer_group_describe.ConsumerGroupDescribeResponse,
    share_group_describe.ShareGroupDescribeResponse,
    streams_group_describe.StreamsGroupDescribeResponse,
)
Described = (
    consumer_group_describe.DescribedGroup | share_group_describe.DescribedGroup | streams_group_describe.DescribedGroup
)
Member = consumer_group_describe.Member | share_group_describe.Member | streams_group_describe.Member
Assigned = consumer_group_describe.Assignment | share_group_describe.Assignment
"""The partitions of a member."""
_NO_SUCH_GROUP: Final = frozenset({Error.GROUP_ID_NOT_FOUND, Error.UNSUPPORTED_VERSION})
"""No group has the id, or one of another type."""


async def consumer_group(ask: Questions, group: str) -> consumer_group_describe.DescribedGroup | None:
    """A group of KIP-848, since Kafka 3.7; None if there is none. Raises `ClientError` as each function here, if the
    coordinator did not answer in time, or refused.
    """
    request = consumer_group_describe.ConsumerGroupDescribeRequest([group])
    answer = await _asked(ask, group, request, consumer_group_describe.ConsumerGroupDescribeResponse)
    return None if answer is None else answer.groups[0]


async def share_group(ask: Questions, group: str) -> share_group_describe.DescribedGroup | None:
    """A share group, since Kafka 4.1; None if there is none."""
    request = share_group_describe.ShareGroupDescribeRequest([group])
    answer = await _asked(ask, group, request, share_group_describe.ShareGroupDescribeResponse)
    return None if answer is None else answer.groups[0]


async def streams_group(ask: Questions, group: str) -> streams_group_describe.DescribedGroup | None:
    """A streams group, since Kafka 4.1; None if there is none."""
    request = streams_group_describe.StreamsGroupDescribeRequest([group])
    answer = await _asked(ask, group, request, streams_group_describe.StreamsGroupDescribeResponse)
    return None if answer is None else answer.groups[0]


async def _asked(ask: Questions, group: str, request: _Request, answer: type[_Answer]) -> _Answer | None:
    """The answer about one group; None from a broker that has no groups of the type, or not this one."""
    try:
        found: _Answer = await ask.ask_coordinator(
            KeyType.GROUP, group, request, answer, lambda answer: [one.error_code for one in answer.groups]
        )
    except ClientError as failed:
        if failed.cause is not Cause.UNSUPPORTED_VERSION:
            raise
        return None
    [one] = found.groups
    error = Error.of(one.error_code)
    if error in _NO_SUCH_GROUP:
        return None
    if error is not Error.NONE:
        raise refused(f"group {group}", error, one.error_message)
    return found
