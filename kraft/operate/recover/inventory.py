"""What survives: the log directories of controllers and brokers that an operator still has. Nothing is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Literal

from msgspec import Struct

from kraft.operate.recover.broker_files import PartitionFiles, partition_names, read_partitions, stray_names
from kraft.operate.recover.copies import MetadataCopy, read_copy
from metadata_log.disk import Disk
from metadata_log.errors import DirectoryError
from metadata_log.log.log_dir import (
    BOOTSTRAP_CHECKPOINT,
    LOCK_FILE,
    META_PROPERTIES,
    PARTITION_DIRECTORY,
    MetaProperties,
    read_meta_properties,
)
from metadata_log.types import Uuid

Role = Literal["controller", "broker"]
CONTROLLER: Final[Role] = "controller"
BROKER: Final[Role] = "broker"


class LogDir(Struct, kw_only=True):
    """One log directory of a node.

    Args:
        name: The name in the plan: the last part of the path, or the path if several directories have that name.
        path: The path as the operator gave it.
        role: What the node is in the plan. A node with both roles is a controller.
        meta: The content of meta.properties.
        copy: The copy of the metadata log; None without one.
        partitions: The partitions of topics.
        strays: The directories that the broker has renamed to `-stray` already.
        has_bootstrap: Whether there is a bootstrap.checkpoint.
    """

    name: str
    path: str
    role: Role
    meta: MetaProperties
    copy: MetadataCopy | None = None
    partitions: tuple[PartitionFiles, ...] = ()
    strays: tuple[str, ...] = ()
    has_bootstrap: bool = False


class Inventory(Struct, frozen=True, kw_only=True):
    """Every log directory that is left, controllers first, in the given order."""

    cluster_id: str
    dirs: tuple[LogDir, ...]

    @property
    def copies(self) -> list[tuple[LogDir, MetadataCopy]]:
        """The directories with a copy of the metadata log."""
        return [(one, one.copy) for one in self.dirs if one.copy is not None]

    @property
    def highest_epoch(self) -> int:
        """The highest epoch in any log, snapshot or quorum-state."""
        return max((copy.highest_epoch for _, copy in self.copies), default=0)


def read_inventory(
    disk: Disk,
    controllers: Sequence[str],
    brokers: Sequence[str],
    *,
    live: bool = False,
    advance: Callable[[int], None] = lambda _: None,
) -> Inventory:
    """Read the surviving log directories.

    Args:
        disk: The disk.
        controllers: Log directories of controllers.
        brokers: Log directories of brokers.
        live: Whether the directories of running nodes are allowed. Their ends move while they are read.
        advance: A function that is called with 1 after each directory.

    Returns:
        The inventory. A directory that was given as a controller's and holds partitions of topics counts as a broker's,
        unless a voter set or a registration names its node as a controller.

    Raises:
        DirectoryError: A directory is not formatted, belongs to a running node, or to another cluster than the others.
        MetadataLogError: meta.properties is damaged.
        OSError: A file is unreadable.
    """
    paths = [_plain(path) for path in (*controllers, *brokers)]
    double = [path for path, times in Counter(paths).items() if times > 1]
    if double:
        raise DirectoryError("the directory was given twice", where=double[0], hint="Give each directory once.")
    if not paths:
        raise DirectoryError("no directory was given", hint="Name log directories, as in log.dirs.")
    same_name = Counter(path.rpartition("/")[2] for path in paths)
    found = []
    for index, path in enumerate(paths):
        base = path.rpartition("/")[2]
        name = base if same_name[base] == 1 else path
        found.append(_read_dir(disk, path, name, CONTROLLER if index < len(controllers) else BROKER, live=live))
        advance(1)
    clusters = Counter(one.meta.cluster_id for one in found)
    if len(clusters) > 1:
        told = ", ".join(f"{one.name} of {one.meta.cluster_id}" for one in found)
        raise DirectoryError(
            f"the directories belong to {len(clusters)} clusters: {told}",
            where=META_PROPERTIES,
            field="cluster.id",
            hint="Give the directories of one cluster. A volume of another cluster may be mounted in the wrong place.",
        )
    _settle_roles(found)
    return Inventory(
        cluster_id=found[0].meta.cluster_id,
        dirs=tuple(sorted(found, key=lambda one: one.role == BROKER)),
    )


def _plain(path: str) -> str:
    plain = path.rstrip("/") or "/"
    return plain[: -len(PARTITION_DIRECTORY) - 1] if plain.endswith(f"/{PARTITION_DIRECTORY}") else plain


def _read_dir(disk: Disk, path: str, name: str, role: Role, *, live: bool) -> LogDir:
    if not disk.exists(path):
        raise DirectoryError("there is no such directory", where=path, hint="Name log directories, as in log.dirs.")
    meta = read_meta_properties(disk, path)
    if meta is None:
        raise DirectoryError(
            f"this is no log directory: it has no {META_PROPERTIES}",
            where=path,
            hint="Name log directories, as in log.dirs. A missing meta.properties can be put back from a backup.",
        )
    if not live:
        _check_stopped(disk, path)
    partition = f"{path}/{PARTITION_DIRECTORY}"
    names = disk.list(path)
    copy = read_copy(disk, partition) if PARTITION_DIRECTORY in names else None
    return LogDir(
        name=name,
        path=path,
        role=role,
        meta=meta,
        copy=copy,
        partitions=read_partitions(disk, path) if partition_names(names) else (),
        strays=tuple(stray_names(names)),
        has_bootstrap=BOOTSTRAP_CHECKPOINT in names,
    )


def _check_stopped(disk: Disk, path: str) -> None:
    lock = f"{path}/{LOCK_FILE}"
    if not disk.exists(lock):
        return
    try:
        disk.lock(lock).release()
    except BlockingIOError as held:
        raise DirectoryError(
            "a running node uses the directory, so the end of its log moves",
            where=path,
            hint="Stop the node first. `kraft recover plan --live` reads the directory nevertheless.",
        ) from held


def _settle_roles(found: list[LogDir]) -> None:
    """A voter is a controller, however its directory was given; any other node with partitions is a broker."""
    voters: dict[int, Uuid | None] = {}
    for one in found:
        if one.copy is None:
            continue
        quorum, state = one.copy.quorum, one.copy.quorum_state
        if quorum.voters is not None:
            voters |= {voter.voter_id: voter.voter_directory_id for voter in quorum.voters.record.voters}
        elif quorum.last_election is not None:
            voters |= {voter.voter_id: None for voter in quorum.last_election.voters}
        elif state is not None:
            voters |= dict.fromkeys(state.current_voters)
    for one in found:
        if one.meta.node_id in voters:
            one.role = CONTROLLER
        elif one.partitions:
            one.role = BROKER
