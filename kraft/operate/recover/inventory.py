"""List the log directories of controllers and brokers that an operator still has. Nothing is written.

Of the batches of partitions only headers are read, and only after the newest producer snapshot, as a broker's own
start does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Literal

from msgspec import Struct

from kraft.operate.recover.copies import MetadataCopy, read_copy
from metadata_log.disk import Disk, LockHeld, is_directory
from metadata_log.errors import CorruptBatch, DirectoryError, MetadataLogError, UnsupportedVersion
from metadata_log.log.epochs import FILE_NAME as EPOCHS_FILE
from metadata_log.log.epochs import parse_epochs
from metadata_log.log.log_dir import (
    BOOTSTRAP_CHECKPOINT,
    LOCK_FILE,
    META_PROPERTIES,
    PARTITION_METADATA,
    MetaProperties,
    parse_partition_metadata,
    read_meta_properties,
)
from metadata_log.log.partition_names import STRAY, PartitionName, parse_partition_name
from metadata_log.log.producer_snapshot import SUFFIX as PRODUCER_SUFFIX
from metadata_log.log.producer_snapshot import read_producer_snapshot
from metadata_log.log.segment import file_name, parse_file_name, scan_headers
from metadata_log.types import PARTITION_DIRECTORY, Uuid


class PartitionFiles(Struct, frozen=True, kw_only=True):
    """One partition in a broker's log directory.

    Args:
        name: The name of the directory, such as `orders-3`.
        topic: The topic.
        number: The number of the partition.
        topic_id: The id in partition.metadata; None if the file is missing or unreadable.
        log_end: The log end offset.
        last_epoch: The last epoch in leader-epoch-checkpoint; -1 for none.
        size_bytes: The size of the segments.
        max_producer_id: The highest producer id in the log; -1 for none.
        max_timestamp: The latest time of the last batches in ms, as producers set it; -1 for none.
        damage: The defect of the log or of its small files, if any.
    """

    name: str
    topic: str
    number: int
    topic_id: Uuid | None
    log_end: int
    last_epoch: int
    size_bytes: int
    max_producer_id: int
    max_timestamp: int
    damage: str | None = None


def partition_names(names: Sequence[str]) -> list[tuple[str, PartitionName]]:
    """The directories of partitions in use among names."""
    parsed = [(name, parse_partition_name(name)) for name in names if name != PARTITION_DIRECTORY]
    return [(name, partition) for name, partition in parsed if partition is not None and not partition.suffix]


def stray_names(names: Sequence[str]) -> list[str]:
    """The directories that a broker has renamed to `-stray` already."""
    return [name for name in names if (one := parse_partition_name(name)) is not None and one.suffix == STRAY]


def read_partitions(disk: Disk, directory: str) -> tuple[PartitionFiles, ...]:
    """The partitions in a log directory, by name. Raises `OSError` for an unreadable file."""
    names = disk.list(directory)
    return tuple(
        _read_partition(disk, f"{directory}/{name}", name, partition.topic, partition.number)
        for name, partition in partition_names(names)
        if is_directory(disk, f"{directory}/{name}")
    )


def read_partition(disk: Disk, path: str) -> PartitionFiles:
    """One partition in use. Raises `OSError` for an unreadable file."""
    name = path.rpartition("/")[2]
    partition = parse_partition_name(name)
    assert partition is not None, path
    return _read_partition(disk, path, name, partition.topic, partition.number)


def _read_partition(disk: Disk, path: str, name: str, topic: str, number: int) -> PartitionFiles:
    names = disk.list(path)
    damage: list[str] = []
    topic_id, last_epoch = None, -1
    try:
        if PARTITION_METADATA in names:
            where = f"{path}/{PARTITION_METADATA}"
            topic_id = parse_partition_metadata(disk.read(where), where=where)
        if EPOCHS_FILE in names:
            where = f"{path}/{EPOCHS_FILE}"
            last_epoch = parse_epochs(disk.read(where), where=where).last_epoch or 0 if disk.read(where) else -1
    except MetadataLogError as bad:
        damage.append(str(bad))
    bases = [base for one in names if (base := parse_file_name(one)) is not None]
    snapshots = [base for one in names if (base := parse_file_name(one, PRODUCER_SUFFIX)) is not None]
    newest = snapshots[-1] if snapshots else 0
    max_id = -1
    if snapshots:
        where = f"{path}/{newest:020d}{PRODUCER_SUFFIX}"
        max_id, problem = read_producer_snapshot(disk.read(where), where)
        newest = 0 if problem else newest
        damage += [problem] if problem else []
    size, log_end, newest_time = 0, bases[0] if bases else 0, -1
    for index, base in enumerate(bases):
        file = disk.open(f"{path}/{file_name(base)}", writable=False)
        try:
            size += file.size()
            log_end = max(log_end, base)
            following = bases[index + 1] if index + 1 < len(bases) else None
            if following is not None and following <= newest:
                continue
            for header in scan_headers(file):
                log_end = header.next_offset
                max_id = max(max_id, header.producer_id)
                newest_time = max(newest_time, header.max_timestamp)
        except (CorruptBatch, UnsupportedVersion) as bad:
            damage.append(str(bad))
        finally:
            file.close()
    return PartitionFiles(
        name=name,
        topic=topic,
        number=number,
        topic_id=topic_id,
        log_end=log_end,
        last_epoch=last_epoch,
        size_bytes=size,
        max_producer_id=max_id,
        max_timestamp=newest_time,
        damage="; ".join(damage) or None,
    )


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
    copies = []
    for index, path in enumerate(paths):
        base = path.rpartition("/")[2]
        name = base if same_name[base] == 1 else path
        copies.append(_read_dir(disk, path, name, CONTROLLER if index < len(controllers) else BROKER, live=live))
        advance(1)
    clusters = Counter(one.meta.cluster_id for one in copies)
    if len(clusters) > 1:
        told = ", ".join(f"{one.name} of {one.meta.cluster_id}" for one in copies)
        raise DirectoryError(
            f"the directories belong to {len(clusters)} clusters: {told}",
            where=META_PROPERTIES,
            field="cluster.id",
            hint="Give the directories of one cluster. A volume of another cluster may be mounted in the wrong place.",
        )
    _settle_roles(copies)
    return Inventory(
        cluster_id=copies[0].meta.cluster_id,
        dirs=tuple(sorted(copies, key=lambda one: one.role == BROKER)),
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
        by = f" ({held.words})" if isinstance(held, LockHeld) and held.words else ""
        raise DirectoryError(
            f"a running node uses the directory, so the end of its log moves{by}",
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
