"""Judges the batches that a leader sends before any of them is appended.

A batch that cannot be applied would end this node after its commit, and again after every start. Kafka checks the CRC,
appends (`KafkaRaftClient.appendAsFollower`), and finds all other errors when it applies the batch. Here the follower
reports the leader, and fetches again later (decision 0006).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final

from msgspec import Struct

from kraft.limits import BATCH_BYTES
from kraft.quorum.messages import BatchFacts
from kraft.quorum.voters import QuorumChange, VoterSet
from kraft.replica.storage.quorum_records import changes_of
from metadata_log.errors import CorruptBatch, IncompleteBatch, MetadataLogError, UnsupportedVersion
from metadata_log.records.batch import RecordBatch, read_batch
from metadata_log.records.control import LeaderChangeMessage
from metadata_log.records.frame import ControlRecordType, decode_control
from metadata_log.records.quorum_batch import MAX_CONTROL_RECORDS, data_values_by_portions, overhead, quorum_records
from metadata_log.serde import Message
from metadata_log.serde.codec import finished
from metadata_log.types import NO_NODE

CheckValues = Callable[[Sequence[bytes]], Sequence[Message]]
"""Decodes values; raises `MetadataLogError` for values that the application cannot apply."""
Keep = Callable[[RecordBatch, Sequence[bytes], Sequence[Message]], None]
"""Takes the values of a sound batch, with what `CheckValues` has returned for them."""
Judged = tuple[tuple[BatchFacts, ...], str | None, bool]
"""The batches that may be appended; the error in the data after them, if any; whether a later release wrote that."""
_IN_A_LOG: Final = (ControlRecordType.LEADER_CHANGE, ControlRecordType.KRAFT_VERSION, ControlRecordType.KRAFT_VOTERS)


class Follows(Struct, frozen=True, gc=False):
    """The end of a follower's log, and the leader that the follower fetches from."""

    end_offset: int
    last_epoch: int
    epoch: int
    leader_id: int
    voters: VoterSet | None = None
    """The newest voter set in the log; None if there is none."""


def facts_of(data: bytes, follows: Follows | None = None, check: CheckValues | None = None) -> Judged:
    """The result of `judging`, at once."""
    return finished(judging(data, follows, check))


def judging(
    data: bytes, follows: Follows | None = None, check: CheckValues | None = None, keep: Keep | None = None
) -> Generator[int, None, Judged]:
    """Judge the batches of fetched data, up to the first one that no leader may send.

    An incomplete batch at the end is no error: Kafka fills an answer up to its maximum size. Without `follows` the
    first batch is not compared with a log. Without `check` the values are not read, and nothing is kept.

    Work may pause at each yielded number: the records, or equivalent work, since the number before.
    """
    found: list[BatchFacts] = []
    position = 0
    previous = follows
    try:
        while position < len(data):
            batch = read_batch(data, position)
            if batch.size_bytes > BATCH_BYTES:
                raise CorruptBatch(f"a batch of {batch.size_bytes} bytes is larger than any")
            yield overhead(batch)
            if batch.is_control:
                changes, voters = _control_changes(batch, previous)
            else:
                _check_epoch(batch, previous)
                kept: list[bytes] = []
                decoded: list[Message] = []
                for values in data_values_by_portions(batch):
                    if check is not None:
                        decoded += check(values)
                        kept += values
                    yield len(values)
                if keep is not None:
                    keep(batch, kept, decoded)
                changes, voters = (), None
            position += batch.size_bytes
            next_offset = batch.next_offset
            found.append(BatchFacts(batch.base_offset, next_offset, batch.epoch, position, changes, batch))
            if previous is not None:
                newest = voters or previous.voters
                previous = Follows(next_offset, batch.epoch, previous.epoch, previous.leader_id, newest)
    except IncompleteBatch:
        pass
    except UnsupportedVersion as later:
        text = f"this node is behind it: from byte {position} on, {later}. Run the release that wrote it."
        return tuple(found), text, True
    except MetadataLogError as bad:
        return tuple(found), f"it sent damaged records: from byte {position} on, {bad}", False
    return tuple(found), None, False


def _check_epoch(batch: RecordBatch, previous: Follows | None) -> None:
    """Refuse values as the first batch of a new epoch, which begins with the record that names its leader.

    Kafka: `LeaderState.appendStartOfEpochControlRecords`.
    """
    if previous is not None and batch.base_offset == previous.end_offset and batch.epoch > previous.last_epoch:
        raise CorruptBatch(f"epoch {batch.epoch} begins without LeaderChange, at offset {batch.base_offset}")


def _control_changes(batch: RecordBatch, previous: Follows | None) -> tuple[tuple[QuorumChange, ...], VoterSet | None]:
    """The quorum changes in a control batch, and the last voter set in it.

    Raises `CorruptBatch`, `DecodeError` or `UnsupportedVersion` for records that no leader writes.
    """
    if batch.record_count > MAX_CONTROL_RECORDS:
        raise CorruptBatch(f"a batch of {batch.record_count} control records, which no leader writes")
    contents = quorum_records(batch)
    for number, record in enumerate(contents):
        kind, message = decode_control(record.key or b"", record.value or b"")
        if kind not in _IN_A_LOG:
            raise CorruptBatch(f"a control record of type {kind} at offset {record.offset}, which no log holds")
        if isinstance(message, LeaderChangeMessage):
            _check_leader_change(batch, number, message, previous)
        elif number == 0:
            _check_epoch(batch, previous)
    changes = tuple(changes_of(contents))
    voters = None if previous is None else previous.voters
    newest = None
    for change in changes:
        if isinstance(change.value, VoterSet):
            newest = change.value
            _check_overlap(voters, newest, change.offset)
            voters = newest
    return changes, newest


def _check_leader_change(
    batch: RecordBatch, number: int, message: LeaderChangeMessage, previous: Follows | None
) -> None:
    """A leader writes one LeaderChange with its own id, as the first record of its epoch."""
    if number > 0:
        raise CorruptBatch(f"LeaderChange is record {number} of the batch at offset {batch.base_offset}")
    if previous is None or batch.base_offset != previous.end_offset:
        return
    if batch.epoch == previous.last_epoch:
        raise CorruptBatch(f"epoch {batch.epoch} has a second LeaderChange, at offset {batch.base_offset}")
    if batch.epoch == previous.epoch and previous.leader_id not in {NO_NODE, message.leader_id}:
        led = f"epoch {batch.epoch} is led by {previous.leader_id}"
        raise CorruptBatch(f"{led}, and LeaderChange at offset {batch.base_offset} says {message.leader_id}")


def _check_overlap(before: VoterSet | None, after: VoterSet, offset: int) -> None:
    """A voter set differs from the one before it by one voter, so that majorities overlap
    (`VoterSet.hasOverlappingMajority`).
    """
    if before is None:
        return
    gone = sum(key not in after.keys for key in before.keys)
    come = sum(key not in before.keys for key in after.keys)
    if gone > 1 or come > 1:
        raise CorruptBatch(f"the voter set at offset {offset} has lost {gone} voters at once, and got {come} others")
