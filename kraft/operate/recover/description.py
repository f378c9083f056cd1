"""The description of a finished recovery: `recovery.json`, which `apply` writes last and `verify` reads."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct, json

from metadata_log.disk import Disk
from metadata_log.errors import DirectoryError

RECOVERY_FILE: Final = "recovery.json"
"""The name of the file in the directory of a recovery."""

Int32 = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class DescribedVoter(Struct, frozen=True, kw_only=True, rename="camel"):
    """A voter after the recovery. `dir` is the name of its directory beside the description."""

    id: Int32
    directory_id: str
    endpoint: Annotated[str, Meta(pattern=r"^[^:/]+://.+:\d{1,5}$")] | None
    dir: Annotated[str, Meta(pattern=r"^node-\d+$")]


class AcceptedStray(Struct, frozen=True, kw_only=True, rename="camel"):
    """A partition directory that the plan named: its broker will rename it."""

    broker: Int32
    dir: str
    why: str
    log_end: int


class Description(Struct, frozen=True, kw_only=True, rename="camel"):
    """The facts of a recovery, named as in the file."""

    cluster_id: str
    seed: str
    epoch: Int32
    append_at: Offset
    log_end: Offset
    kraft_version: Annotated[int, Meta(ge=0, le=1)]
    voters: Annotated[tuple[DescribedVoter, ...], Meta(min_length=1)]
    appended: dict[str, int]
    partition: Int32
    topics: int
    accepted_strays: tuple[AcceptedStray, ...]
    brokers_gone: tuple[int, ...] = ()
    never_start_again: tuple[str, ...]


def read_description(disk: Disk, path: str) -> Description:
    """The description in the directory of a recovery. `DirectoryError` if there is none, or it is something else."""
    file = f"{path}/{RECOVERY_FILE}"
    if not disk.exists(file):
        raise DirectoryError(
            f"this is no finished recovery: it has no {RECOVERY_FILE}",
            where=path,
            hint="Name the directory of `kraft recover apply --into`. An unfinished one can be removed and made again.",
        )
    try:
        return json.decode(disk.read(file), type=Description)
    except (ValueError, RecursionError) as bad:
        raise DirectoryError(
            f"this is no description of a recovery: {bad}",
            where=file,
            hint="Make the recovery again: `kraft recover apply` with another --into.",
        ) from bad
