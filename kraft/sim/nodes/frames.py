"""Messages in transit between replicas: encoded frames, or in a run without the codecs the messages themselves."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Final

from msgspec import Struct

from kraft.sim.nodes.corruption import corrupted
from kraft.sim.world.member_interface import Corrupted
from metadata_log.serde import Message, decode, encode
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import FetchResponse
from transport.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from transport.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from transport.protocol.messages.vote import VoteRequest, VoteRequestPartitionData, VoteResponse

_SET: Final = 0
_CLIENT_METRICS: Final = 16


class Frame(Struct, frozen=True):
    """A message in transit: its encoded body, or the message itself in a run without the codecs."""

    api_key: int
    version: int
    body: bytes | Message

    def request(self) -> Message:
        """The message of a frame with a request."""
        return self._opened(ALL_APIS[self.api_key].request)

    def response(self) -> Message:
        """The message of a frame with a response."""
        return self._opened(ALL_APIS[self.api_key].response)

    def _opened(self, kind: type[Message]) -> Message:
        return decode(kind, self.version, self.body) if isinstance(self.body, bytes) else self.body


def corrupted_frame(frame: Frame, rng: Random) -> Corrupted | None:
    """A response as it arrives after a corruption in transit; None if the response has no records."""
    corruption = corrupted(frame.response(), frame.version, rng)
    if corruption is None:
        return None
    message, what = corruption
    if message is None:
        return Corrupted(None, what)
    body = encode(message, frame.version) if isinstance(frame.body, bytes) else message
    return Corrupted(Frame(frame.api_key, frame.version, body), what)


@cache
def kind_of(message: type[Message]) -> tuple[int, int, str]:
    """The API key of a kind of requests, its highest version, and its name in traces."""
    key = message.__schema__.api_key
    assert key is not None, message
    return key, ALL_APIS[key].versions.highest, message.__name__.removesuffix("Request")


def requested_vote(message: Message) -> VoteRequestPartitionData | None:
    """The content of a Vote request; None for any other message."""
    if type(message) is not VoteRequest or not message.topics or not message.topics[0].partitions:
        return None
    return message.topics[0].partitions[0]


def is_granted(message: Message) -> bool:
    """Whether a response grants a vote."""
    if not isinstance(message, VoteResponse) or not message.topics:
        return False
    return message.topics[0].partitions[0].vote_granted


def epoch_of_leader(response: Message) -> int | None:
    """The epoch in the response of a leader to a fetch; None if the response is an error."""
    match response:
        case FetchResponse(error_code=Error.NONE, responses=[topic]):
            part = topic.partitions[0]
            return None if part.error_code else part.current_leader.leader_epoch
        case FetchSnapshotResponse(error_code=Error.NONE, topics=[pieces]):
            piece = pieces.partitions[0]
            is_good = piece.error_code in (Error.NONE, Error.SNAPSHOT_NOT_FOUND)
            return piece.current_leader.leader_epoch if is_good else None
        case _:
            return None


def alter_config(name: str) -> IncrementalAlterConfigsRequest:
    """The one admin write that needs no broker: a subscription to client metrics."""
    config = AlterableConfig(name="interval.ms", config_operation=_SET, value="1000")
    resource = AlterConfigsResource(resource_type=_CLIENT_METRICS, resource_name=name, configs=[config])
    return IncrementalAlterConfigsRequest(resources=[resource])
