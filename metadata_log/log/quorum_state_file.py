"""The quorum-state file: epoch, leader and vote of a replica (Kafka: `FileQuorumStateStore`, `QuorumStateData`).

One line of JSON, replaced as a whole. Version 0 is written while `kraft.version` is 0, version 1 after that.
"""

from __future__ import annotations

import json
from typing import Final, NoReturn

from msgspec import Struct

from metadata_log import java_text
from metadata_log.disk import Disk, replace_file
from metadata_log.errors import DecodeError, UnsupportedVersion
from metadata_log.records.control import QuorumStateData
from metadata_log.serde import from_json
from metadata_log.types import NO_NODE, Uuid

FILE_NAME: Final = "quorum-state"
_EPOCH_FIELD: Final = "leaderEpoch"
_VERSION_FIELD: Final = "data_version"
_HIGHEST_VERSION: Final = 1
_LAST_EPOCH: Final = 2**31 - 1
_HINT: Final = (
    "Put the file back from a copy of the same moment. Without it this replica may vote twice in one epoch: "
    "remove it only together with the whole directory, while the other voters are up."
)
_EPOCH_HINT: Final = (
    "Stop all controllers. In the quorum-state of each of them set leaderEpoch to the highest epoch in any of their "
    "leader-epoch-checkpoint files, and leaderId and votedId to -1. Nothing that is in the logs is lost by that."
)


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


_JSON: Final = json.JSONDecoder(parse_constant=_not_a_number)


class StoredElection(Struct, frozen=True, kw_only=True):
    """The content of the file; ids are -1 for none. `current_voters` is for readers only, and only in version 0."""

    leader_epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    voted_directory_id: Uuid = Uuid.ZERO
    current_voters: tuple[int, ...] = ()
    data_version: int = 0


def format_quorum_state(state: StoredElection) -> bytes:
    """The content of the file, byte for byte as Kafka writes it. Version 0 does not store the voted directory id."""
    version = state.data_version
    assert 0 <= state.leader_epoch <= _LAST_EPOCH, state.leader_epoch
    assert 0 <= version <= _HIGHEST_VERSION, version
    ids = f'"leaderId":{state.leader_id},"leaderEpoch":{state.leader_epoch},"votedId":{state.voted_id}'
    if version > 0:
        text = f'{{{ids},"votedDirectoryId":"{state.voted_directory_id}","{_VERSION_FIELD}":{version}}}'
    else:
        voters = ",".join([f'{{"voterId":{voter_id}}}' for voter_id in state.current_voters])
        text = f'{{"clusterId":"",{ids},"appliedOffset":0,"currentVoters":[{voters}],"{_VERSION_FIELD}":0}}'
    return text.encode("ascii")


def parse_quorum_state(content: bytes, *, where: str | None = None) -> StoredElection:
    """Read the content of the file; raises `UnsupportedVersion` or `DecodeError`. Only the first line counts."""

    def fail(what: str) -> NoReturn:
        raise DecodeError(what, where=where, hint=_HINT)

    try:
        lines = java_text.lines(content.decode())
    except UnicodeDecodeError as bad:
        fail(f"this is not text: {bad}")
    if not lines:
        fail("the file is empty")
    try:
        fields, _ = _JSON.raw_decode(lines[0].lstrip(" \t"))
    except (ValueError, RecursionError) as bad:
        fail(f"this is not JSON: {bad}")
    if not isinstance(fields, dict):
        fail(f"a JSON object is expected, not {lines[0][:40]}")
    version = fields.pop(_VERSION_FIELD, None)
    if type(version) is not int:
        fail(f"the field {_VERSION_FIELD} is missing or not a number")
    if not 0 <= version <= _HIGHEST_VERSION:
        raise UnsupportedVersion(
            f"{_VERSION_FIELD} is {version}, and only 0 and 1 are known",
            where=where,
            field=_VERSION_FIELD,
            hint="A newer version has written this directory: run that version.",
        )
    epoch = fields.get(_EPOCH_FIELD)
    if type(epoch) is int and epoch > _LAST_EPOCH:
        what = f"{_EPOCH_FIELD} is {epoch}, and epochs end at {_LAST_EPOCH}"
        raise DecodeError(what, where=where, field=_EPOCH_FIELD, hint=_EPOCH_HINT)
    try:
        data = from_json(QuorumStateData, version, fields)
    except DecodeError as bad:
        raise DecodeError(bad.what, where=where, field=bad.field, hint=_HINT) from bad
    if data.current_voters is None:
        fail("currentVoters is null")
    if min(data.leader_id, data.voted_id) < NO_NODE:
        fail(f"leaderId is {data.leader_id} and votedId {data.voted_id}, and no node has an id below 0")
    return StoredElection(
        leader_epoch=data.leader_epoch,
        leader_id=data.leader_id,
        voted_id=data.voted_id,
        voted_directory_id=data.voted_directory_id,
        current_voters=tuple(voter.voter_id for voter in data.current_voters),
        data_version=version,
    )


def read_quorum_state(disk: Disk, directory: str) -> StoredElection | None:
    """The state in a partition directory, or None without the file; errors as of `parse_quorum_state`."""
    path = f"{directory}/{FILE_NAME}"
    return parse_quorum_state(disk.read(path), where=path) if disk.exists(path) else None


def write_quorum_state(disk: Disk, directory: str, state: StoredElection) -> None:
    """Replace the file in a partition directory; durable when this returns."""
    replace_file(disk, directory, FILE_NAME, format_quorum_state(state))
