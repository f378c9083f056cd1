"""Frames of attackers: random messages of any declaration, mutated frames, and frames of a quorum with any value."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from metadata_log.serde import Message
from metadata_log.serde.fields import ArrayOf, FieldType, Kind, fields_at
from metadata_log.types import METADATA_TOPIC, Uuid
from transport.protocol.apis import APIS, Api
from transport.protocol.headers import encode_request
from transport.protocol.messages import FetchRequest, VoteRequest
from transport.protocol.messages.fetch import FetchPartition, FetchTopic, ReplicaState
from transport.protocol.messages.vote import VoteRequestPartitionData, VoteRequestTopicData

INT_BITS: Final = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}
LAST_FETCH: Final = 18
LAST_VOTE: Final = 2


def framed(content: bytes) -> bytes:
    """With its length in front."""
    return len(content).to_bytes(4, "big") + content


def request_frame(message: Message, version: int, correlation_id: int = 7) -> bytes:
    """A whole request, length included."""
    key = type(message).__schema__.api_key
    assert key is not None
    return framed(encode_request(key, version, correlation_id, "attacker", message))


def random_message(cls: type[Message], version: int, rng: Random) -> Message:
    """An instance that `version` can carry; numbers are at their limits as often as not."""
    values = {field.name: _value(field.type, version, rng) for field in fields_at(cls, version).in_order}
    for field in fields_at(cls, version).in_order:
        if version in field.nullable and rng.random() < 0.3:
            values[field.name] = None
    return cls(**values)


def _value(kind: FieldType, version: int, rng: Random) -> Any:
    match kind:
        case ArrayOf():
            return [_value(kind.element, version, rng) for _ in range(rng.choice((0, 1, 1, 2)))]
        case Kind.BOOL:
            return rng.random() < 0.5
        case Kind.UINT16:
            return rng.choice((0, 9093, 65535))
        case Kind.FLOAT64:
            return rng.choice((0.0, -1.0, 1e308))
        case Kind.STRING:
            return rng.choice(("", "__cluster_metadata", "orders", "x" * 300, "\x1b[2J\n", "é"))
        case Kind.BYTES | Kind.RECORDS:
            return rng.randbytes(rng.choice((0, 1, 61, 300)))
        case Kind.UUID:
            return rng.choice((Uuid.ZERO, Uuid.METADATA_TOPIC, Uuid(rng.randbytes(16))))
        case Kind():
            top = 1 << (INT_BITS[kind] - 1)
            return rng.choice((-top, -1, 0, 1, 2, 3, top - 1, rng.randrange(-top, top)))
        case _:
            return random_message(kind, version, rng)


def any_request(rng: Random) -> tuple[Api, int, Message]:
    """A random request of any API in any version."""
    api = APIS[rng.choice(sorted(APIS))]
    version = rng.randint(api.versions.lowest, api.versions.highest)
    return api, version, random_message(api.request, version, rng)


def mutated(frame: bytes, rng: Random) -> bytes:
    """The frame, cut, grown or with some bytes changed; its length is put right more often than not."""
    content = bytearray(frame[4:])
    for _ in range(rng.randint(0, 4)):
        at = rng.randrange(len(content) + 1)
        match rng.randrange(4):
            case 0:
                content[at : at + 1] = rng.randbytes(1)
            case 1:
                del content[at : at + rng.randint(1, 16)]
            case 2:
                content[at:at] = rng.choice((b"\xff" * 5, b"\x00" * 8, b"\x7f\xff\xff\xff"))
            case _:
                content[at : at + 4] = rng.choice((b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\xff\xff\xff"))
    if rng.random() < 0.9:
        return framed(bytes(content))
    return rng.randrange(1 << 20).to_bytes(4, "big") + bytes(content)


def metadata_fetch(
    offset: int,
    epoch: int,
    *,
    replica_id: int = -1,
    last_epoch: int | None = None,
    max_wait_ms: int = 0,
    correlation_id: int = 7,
) -> bytes:
    """A Fetch of the metadata log."""
    part = FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=epoch if last_epoch is None else last_epoch,
        replica_directory_id=Uuid(bytes(15) + b"\x09"),
        high_watermark=1 << 62,
    )
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=replica_id, replica_epoch=-1),
        max_wait_ms=max_wait_ms,
        max_bytes=(1 << 31) - 1,
        topics=[FetchTopic(topic_id=Uuid.METADATA_TOPIC, partitions=[part])],
    )
    return request_frame(request, LAST_FETCH, correlation_id)


def vote(voter_id: int, replica_id: int, epoch: int, *, pre_vote: bool, offset: int = 0, last_epoch: int = 0) -> bytes:
    """A Vote or a pre-vote of any replica."""
    part = VoteRequestPartitionData(
        replica_epoch=epoch,
        replica_id=replica_id,
        last_offset=offset,
        last_offset_epoch=last_epoch,
        pre_vote=pre_vote,
    )
    topic = VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    return request_frame(VoteRequest(voter_id=voter_id, topics=[topic]), LAST_VOTE)
