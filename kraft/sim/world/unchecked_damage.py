"""Damage of the two things on a disk that no checksum covers: the file `quorum-state`, and the epochs in the headers of
batches.

A node notices such damage only if the rest of the disk contradicts it. `contradiction` says so with rules of its own.
The damage that is made here is either contradicted, and then no start may succeed, or it loses a vote or a leader and
adds nothing: then the operator's rules for lost disks apply (`disk_losses`). `docs/simulated-faults.md` lists the
damage that nothing contradicts, and that is not made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Final

from metadata_log.errors import MetadataLogError
from metadata_log.log.segment import SUFFIX
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import RecordBatch, scan

_EPOCH_AT: Final = 12
_EPOCH_BYTES: Final = 4
_TRIES: Final = 8
_NONE: Final = -1
_OTHER_JSON: Final = (
    b"{}",
    b"[]",
    b"null",
    b"-1",
    b'"quorum-state"',
    b'{"data_version":0}',
    b'{"leaderId":-1,"leaderEpoch":0,"votedId":-1}',
    b'{"clusterId":"","leaderId":-1,"leaderEpoch":0,"votedId":-1,"appliedOffset":0,"currentVoters":[],"data_version":7}',
    b'{"clusterId":"","leaderId":-1,"leaderEpoch":"many","votedId":-1,"appliedOffset":0,"data_version":0}',
    b"#\n#Thu Jan 01 00:00:00 UTC 1970\nversion=1\n",
)
"""Whole contents that are not those of a quorum-state file."""
_FIELDS: Final = {"leaderId": int, "leaderEpoch": int, "votedId": int}


def contradiction(disk: MemoryDisk, election_path: str) -> str:
    """The damage of `quorum-state` or of an epoch that no start may overlook; empty if there is none."""
    fields: dict[str, object] | None = {"leaderEpoch": 0}
    if election_path in disk.files():
        fields = _fields_of(disk.peek(election_path))
    if fields is None:
        return f"{election_path} is not a quorum-state file"
    last = 0
    for path, batch in _log(disk):
        if batch.epoch < last:
            return f"{path}: a batch of epoch {batch.epoch} follows one of epoch {last}"
        last = batch.epoch
    if last > _epoch_of(fields):
        return f"{election_path} has epoch {_epoch_of(fields)}, and the log has epoch {last}"
    return ""


def damage_election(disk: MemoryDisk, path: str, rng: Random) -> str:
    """Change the content of `quorum-state`; returns a description, or an empty text without such a file."""
    if path not in disk.files():
        return ""
    content = disk.peek(path)
    name, make = rng.choice(_SHAPES)
    changed = make(content, rng)
    for _ in range(_TRIES):
        if changed is not None:
            break
        changed = _flipped(content, rng)
    if changed is None:
        name, changed = "cut", _cut(content, rng)
    if changed == content:
        return ""
    _replace(disk, path, changed)
    return f"{path} {name}: {changed[:80]!r}"


def damage_epoch(disk: MemoryDisk, election_path: str, rng: Random) -> str:
    """Change the epoch of a batch so that the rest of the disk contradicts it; returns a description, or an empty text
    if there is no such batch.
    """
    batches = list(_log(disk))
    for _ in range(_TRIES if batches else 0):
        path, batch = rng.choice(batches)
        epoch = other_epoch(batch.epoch, rng)
        at = batch.position + _EPOCH_AT
        before = disk.peek(path)[at : at + _EPOCH_BYTES]
        disk.overwrite(path, at, epoch.to_bytes(_EPOCH_BYTES, signed=True))
        if contradiction(disk, election_path):
            return f"{path} at {at}: epoch {batch.epoch} is now {epoch}"
        disk.overwrite(path, at, before)
    return ""


def other_epoch(epoch: int, rng: Random) -> int:
    """Another epoch as an int32: a near one, or one with a flipped bit."""
    if rng.random() < 0.5:
        return epoch + rng.choice((-2, -1, 1, 2))
    flipped = epoch ^ 1 << rng.randrange(32)
    return flipped - (1 << 32) if flipped >= 1 << 31 else flipped


# The log


def _log(disk: MemoryDisk) -> Iterator[tuple[str, RecordBatch]]:
    """The batches of all segments with their files, up to the first batch that is damaged."""
    for path in disk.files():
        if path.endswith(SUFFIX):
            content, read = disk.peek(path), 0
            with suppress(MetadataLogError):
                for batch in scan(content):
                    yield path, batch
                    read = batch.end_position
            if read < len(content):
                return


# The file quorum-state


def _fields_of(content: bytes) -> dict[str, object] | None:
    """The fields in the first line; None if a reader must refuse them."""
    try:
        fields = json.loads(re.split(rb"[\r\n]", content)[0].decode())
    except ValueError:
        return None
    if not isinstance(fields, dict) or any(type(fields.get(name)) is not kind for name, kind in _FIELDS.items()):
        return None
    version = fields.get("data_version")
    needed = {0: "currentVoters", 1: "votedDirectoryId"}
    if type(version) is not int or version not in needed or needed[version] not in fields:
        return None
    return fields


def _epoch_of(fields: dict[str, object]) -> int:
    epoch = fields["leaderEpoch"]
    assert isinstance(epoch, int), fields
    return epoch


def _flipped(content: bytes, rng: Random) -> bytes | None:
    """The content with one flipped bit; None if it would still be that of a quorum-state file."""
    if not content:
        return None
    at = rng.randrange(len(content))
    changed = content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
    return changed if _fields_of(changed) is None else None


def _cut(content: bytes, rng: Random) -> bytes:
    """A part of the content from its beginning."""
    return content[: rng.randrange(len(content))] if content else content


def _empty(content: bytes, rng: Random) -> bytes:
    return b""


def _other(content: bytes, rng: Random) -> bytes:
    return rng.choice(_OTHER_JSON)


def _zeros(content: bytes, rng: Random) -> bytes:
    """Zeros in place of the content, as some file systems leave after a power failure."""
    return bytes(len(content))


def _without_vote(content: bytes, rng: Random) -> bytes | None:
    """The epoch without its vote and its leader: a valid file, which nothing contradicts."""
    return _with(content, leaderId=_NONE, votedId=_NONE)


def _of_a_former_epoch(content: bytes, rng: Random) -> bytes | None:
    """A former epoch without a vote: the log contradicts it if the log has records of a later epoch."""
    fields = _fields_of(content)
    if fields is None or _epoch_of(fields) == 0:
        return None
    return _with(content, leaderId=_NONE, votedId=_NONE, leaderEpoch=rng.randrange(_epoch_of(fields)))


def _with(content: bytes, **changes: int) -> bytes | None:
    fields = _fields_of(content)
    if fields is None:
        return None
    if "votedDirectoryId" in fields:
        fields["votedDirectoryId"] = "AAAAAAAAAAAAAAAAAAAAAA"
    return json.dumps({**fields, **changes}, separators=(",", ":")).encode()


_SHAPES: Final[tuple[tuple[str, Callable[[bytes, Random], bytes | None]], ...]] = (
    ("flipped", _flipped),
    ("cut", _cut),
    ("empty", _empty),
    ("replaced", _other),
    ("zeros", _zeros),
    ("without its vote", _without_vote),
    ("of a former epoch", _of_a_former_epoch),
)


def _replace(disk: MemoryDisk, path: str, content: bytes) -> None:
    """Replace the durable content of a file, whatever faults are planned for the disk."""
    hook, free_bytes = disk.on_operation, disk.free_bytes
    disk.on_operation = disk.free_bytes = None
    file = disk.open(path)
    try:
        file.truncate(0)
        file.append(content)
        file.fsync()
    finally:
        file.close()
        disk.on_operation, disk.free_bytes = hook, free_bytes
