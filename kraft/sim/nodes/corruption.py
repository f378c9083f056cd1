"""Corruption of answers in transit, after the checksum of TCP has missed it.

Kafka's protocol has one checksum of its own, the CRC of each record batch. So the bytes of records change in an answer
to a Fetch or to a FetchSnapshot, or a frame is cut so that no decoder accepts it. A change of any other field makes
another message, which its receiver has to believe: `docs/simulated-faults.md` says what is not covered, and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Final

from msgspec.structs import replace

from kraft.sim.world.unchecked_damage import other_epoch
from metadata_log.errors import DecodeError, MetadataLogError
from metadata_log.records.batch import CHECKED_AT, RecordBatch, scan
from metadata_log.serde import Message, decode, encode
from transport.protocol.messages.fetch import FetchResponse
from transport.protocol.messages.fetch_snapshot import FetchSnapshotResponse

_EPOCH_AT: Final = 12
_EPOCH_BYTES: Final = 4
_CRC_AT: Final = 17
_MOST_BITS: Final = 3
"""CRC-32C finds every error of so many bits in a batch."""
_CUT: Final = 0.1
"""The share of cut frames among the corrupted answers."""
_EPOCHS: Final = 0.4
"""The share of changed epochs among the changes of records."""


def corrupted(message: Message, version: int, rng: Random) -> tuple[Message | None, str] | None:
    """Corrupt an answer with records.

    Args:
        message: The answer as it was sent.
        version: The version of its wire form.
        rng: Draws what changes.

    Returns:
        The answer that arrives, or None in its place if the decoder refuses the frame; and a description. None alone if
        the answer has no records.
    """
    data = _records_of(message)
    if not data:
        return None
    if rng.random() < _CUT:
        size = _undecodable(message, version, rng)
        if size is not None:
            return None, f"the frame ends after {size} bytes"
    changed, what = _change(data, rng, _epoch_in(message))
    return _with_records(message, changed), what


def _change(data: bytes, rng: Random, leader_epoch: int | None) -> tuple[bytes, str]:
    """The records with some other bits, or with another epoch in one batch."""
    batches = _batches(data)
    if batches and rng.random() < _EPOCHS:
        batch = rng.choice(batches)
        epoch = other_epoch(batch.epoch, rng)
        if leader_epoch is not None and batch.epoch < leader_epoch and rng.random() < 0.5:
            # A follower that catches up: no epoch up to that of its leader is out of range.
            epoch = rng.randint(batch.epoch + 1, leader_epoch)
        if leader_epoch is None or not _may_begin_an_epoch(batch) or not 0 <= epoch <= leader_epoch:
            at = batch.position + _EPOCH_AT
            changed = data[:at] + epoch.to_bytes(_EPOCH_BYTES, signed=True) + data[at + _EPOCH_BYTES :]
            return changed, f"the batch of offset {batch.base_offset} has epoch {epoch} and not {batch.epoch}"
    position = rng.randrange(len(data))
    batch_of = next((one for one in batches if one.position <= position < one.end_position), None)
    if batch_of is not None and position - batch_of.position < CHECKED_AT:
        # An epoch has a rule of its own above. The other bytes before the CRC are the offset, the length and the magic.
        if _EPOCH_AT <= position - batch_of.position < _CRC_AT - 1:
            position = batch_of.position + rng.randrange(_CRC_AT, batch_of.size_bytes)
        return _flip(data, (position,), rng), f"byte {position} of the records"
    end = len(data) if batch_of is None else batch_of.end_position
    positions = [position, *(rng.randrange(position, end) for _ in range(rng.randrange(_MOST_BITS)))]
    return _flip(data, sorted(set(positions)), rng), f"bytes {sorted(set(positions))} of the records"


def _flip(data: bytes, positions: Sequence[int], rng: Random) -> bytes:
    flipped = bytearray(data)
    for position in positions:
        flipped[position] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def _may_begin_an_epoch(batch: RecordBatch) -> bool:
    """Whether the batch may be the first one of its epoch: LeaderChange does not repeat the epoch of the header, so
    that nothing in the batch contradicts another epoch.
    """
    return batch.is_control


def _batches(data: bytes) -> list[RecordBatch]:
    """The whole batches from the beginning of the records. A piece of a snapshot may begin within a batch."""
    record_batches: list[RecordBatch] = []
    with suppress(MetadataLogError):
        for batch in scan(data):
            record_batches.append(batch)  # noqa: PERF402 - the batches before an error count
    return record_batches


# The two answers with records


def _records_of(message: Message) -> bytes:
    match message:
        case FetchResponse(responses=[topic]) if len(topic.partitions) == 1:
            return topic.partitions[0].records or b""
        case FetchSnapshotResponse(topics=[topic]) if len(topic.partitions) == 1:
            return topic.partitions[0].unaligned_records or b""
        case _:
            return b""


def _with_records(message: Message, data: bytes) -> Message:
    if isinstance(message, FetchResponse):
        (fetched,) = message.responses
        parts = [replace(fetched.partitions[0], records=data)]
        return replace(message, responses=[replace(fetched, partitions=parts)])
    assert isinstance(message, FetchSnapshotResponse), message
    (topic,) = message.topics
    pieces = [replace(topic.partitions[0], unaligned_records=data)]
    return replace(message, topics=[replace(topic, partitions=pieces)])


def _epoch_in(message: Message) -> int | None:
    """The epoch of the leader that has answered a Fetch; None in an answer to a FetchSnapshot."""
    if not isinstance(message, FetchResponse):
        return None
    return message.responses[0].partitions[0].current_leader.leader_epoch


def _undecodable(message: Message, version: int, rng: Random) -> int | None:
    """The size of a part of the frame that the decoder refuses, from the beginning; None if the decoder accepts it."""
    wire = encode(message, version)
    size = rng.randrange(len(wire))
    try:
        decode(type(message), version, wire[:size])
    except DecodeError:
        return size
    return None
