"""Reads log directories and properties files into the facts of nodes. Nothing is locked and nothing is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import javaproperties
from msgspec import Struct
from msgspec.structs import replace

from kraft.config.errors import ConfigError
from kraft.config.properties import parse_properties
from kraft.operate.doctor.facts.log_facts import LogFacts
from kraft.operate.doctor.facts.node import Directory, HostFacts, Meta, Node, OpenFile, RemoteSpan, Replica
from kraft.operate.doctor.facts.settings import Settings
from kraft.operate.doctor.read_log import read_log
from kraft.partitions.log.checkpoints import LOG_STARTS, parse_offsets
from metadata_log.disk import Disk, file_bytes
from metadata_log.errors import MetadataLogError
from metadata_log.log.epochs import FILE_NAME as EPOCHS_FILE
from metadata_log.log.epochs import EpochHistory, parse_epochs
from metadata_log.log.log_dir import META_PROPERTIES, PARTITION_METADATA, parse_partition_metadata
from metadata_log.log.partition_names import PartitionName, parse_partition_name
from metadata_log.log.producer_snapshot import SUFFIX as PRODUCER_SUFFIX
from metadata_log.log.producer_snapshot import read_producer_snapshot
from metadata_log.log.segment import parse_file_name
from metadata_log.reading.missing import foreign_directories, has_log
from metadata_log.types import PARTITION_DIRECTORY
from metadata_log.types import REMOTE_TOPIC as REMOTE

T = TypeVar("T")
GROUPS: Final = "__consumer_offsets"
BROKER_FILES: Final = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    LOG_STARTS,
    "cleaner-offset-checkpoint",
)
Advance = Callable[[int], None]


class Source(Struct, frozen=True, kw_only=True):
    """Where facts come from: a disk, and what the host says of a directory and of single files."""

    disk: Disk
    host: Callable[[str, LogFacts | None], HostFacts | None] = lambda path, log: None
    files: Callable[[Settings], tuple[OpenFile, ...]] = lambda settings: ()


class Unreadable(Struct, frozen=True):
    """An input that could not be read, and why."""

    path: str
    why: str


def read_settings(disk: Disk, path: str) -> Settings:
    """The settings of a properties file; raises `ConfigError` and `OSError`."""
    data = disk.read(path)
    if b"\0" in data:
        raise ConfigError("this is no properties file", hint="A segment or a snapshot is read with its log directory")
    return Settings(source=path, values=parse_properties(data, source=path))


def read_nodes(
    source: Source, configs: Sequence[str], directories: Sequence[str], advance: Advance = lambda batches: None
) -> tuple[tuple[Node, ...], tuple[Unreadable, ...]]:
    """The nodes of these properties files and log directories, and the inputs that could not be read.

    A relative path in `log.dirs` is relative to the folder of its properties file. A directory that a properties file
    names, too, is read once. The log directories of one broker are one node.
    """
    nodes: list[Node] = []
    bad: list[Unreadable] = []
    seen: set[str] = set()
    for path in configs:
        if os.path.realpath(path) in seen:
            continue
        seen.add(os.path.realpath(path))
        try:
            nodes.append(_configured(source, path, seen, advance))
        except (ConfigError, MetadataLogError, OSError) as failed:
            bad.append(Unreadable(path, _reason(failed, path)))
    given: list[Node] = []
    for path in directories:
        base = path.rstrip("/") or "/"
        if os.path.realpath(base) in seen:
            continue
        seen.add(os.path.realpath(base))
        try:
            given.append(Node(name="", directories=(_given(source, base, advance),)))
        except (MetadataLogError, OSError) as failed:
            bad.append(Unreadable(path, _reason(failed, base)))
    return named((*nodes, *_together(given))), tuple(bad)


def _reason(failed: Exception, path: str) -> str:
    if isinstance(failed, OSError):
        within = "" if failed.filename in {None, path} else f" ({failed.filename})"
        return f"{failed.strerror or failed}{within}"
    hint = failed.hint if isinstance(failed, ConfigError) else None
    return f"{failed}. {hint.rstrip('.')}" if hint else str(failed)


def named(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """The nodes with names: the id of a node, and its place where two nodes have one id."""
    all_nodes = tuple(nodes)
    ids = [node.id for node in all_nodes]
    result = []
    for node in all_nodes:
        path = node.settings.source if node.settings is not None else node.directories[0].path
        place = f"{node.host}:{path}" if node.host else path
        name = place if node.id is None else f"node {node.id}"
        is_shared = node.id is not None and ids.count(node.id) > 1
        result.append(replace(node, name=f"{name} ({place})" if is_shared else name))
    return tuple(result)


def _together(nodes: Sequence[Node]) -> list[Node]:
    """The directories of one broker as one node: same cluster, same node id, and at most one metadata log."""
    result: list[Node] = []
    for node in nodes:
        mine = node.directories[0]
        for place, other in enumerate(result):
            both = (*other.directories, mine)
            same = node.id is not None and node.id == other.id and _cluster(node) == _cluster(other)
            if same and sum(one.log is not None for one in both) <= 1 and any(one.has_broker_files for one in both):
                result[place] = replace(other, directories=both)
                break
        else:
            result.append(node)
    return result


def _cluster(node: Node) -> str:
    return "" if node.meta is None else node.meta.cluster_id


def _configured(source: Source, path: str, seen: set[str], advance: Advance) -> Node:
    settings = read_settings(source.disk, path)
    folder = os.path.dirname(path)
    paths = [os.path.join(folder, one) for one in settings.log_dirs]
    log_dir = settings.text("metadata.log.dir")
    metadata = os.path.join(folder, log_dir) if log_dir else paths[0] if paths else ""
    if metadata and metadata not in paths:
        paths.insert(0, metadata)
    directories = []
    for one in dict.fromkeys(paths):
        seen.add(os.path.realpath(one))
        directories.append(replace(read_directory(source, one, advance), is_metadata=one == metadata))
    return Node(
        name="",
        settings=settings,
        directories=tuple(directories),
        files=source.files(settings),
    )


def _given(source: Source, path: str, advance: Advance) -> Directory:
    """A directory of the command line: a log directory, or the directory of the metadata partition."""
    disk = source.disk
    names = disk.list(path)
    if path.rpartition("/")[2] == PARTITION_DIRECTORY and META_PROPERTIES not in names:
        parent = path.rpartition("/")[0] or "."
        log = read_log(disk, path, advance)
        return Directory(
            path=path,
            is_metadata=True,
            meta=_read_meta(disk, parent),
            may_lack_meta=True,
            log=log,
            host=source.host(path, log),
        )
    if not (META_PROPERTIES in names or PARTITION_DIRECTORY in names or has_log(disk, path) or _has_replicas(names)):
        raise MetadataLogError("this is no log directory of a node", hint="Name log directories, as in log.dirs.")
    directory = read_directory(source, path, advance)
    return replace(
        directory,
        is_metadata=directory.log is not None or not directory.has_broker_files,
        may_lack_meta=PARTITION_DIRECTORY not in names and not _has_replicas(names),
    )


def _has_replicas(names: Sequence[str]) -> bool:
    return any(name in BROKER_FILES for name in names)


def read_directory(source: Source, path: str, advance: Advance) -> Directory:
    """The facts of one log directory; a directory that does not exist has none."""
    disk = source.disk
    if not disk.exists(path):
        return Directory(path=path, exists=False)
    names = disk.list(path)
    log = None
    if PARTITION_DIRECTORY in names:
        log = read_log(disk, f"{path}/{PARTITION_DIRECTORY}", advance)
    elif has_log(disk, path):
        log = read_log(disk, path, advance)
    # Other commands tell of a damaged checkpoint.
    starts, _ = _small_file(disk, f"{path}/{LOG_STARTS}", lambda text: parse_offsets(text, where=LOG_STARTS))
    replicas = tuple(
        replica for name in names if (replica := _read_replica(disk, path, name, starts or {})) is not None
    )
    return Directory(
        path=path,
        meta=_read_meta(disk, path),
        log=log,
        replicas=replicas,
        # A controller without a broker does not care.
        foreign=tuple(foreign_directories(disk, path, names)) if replicas or _has_replicas(names) else (),
        has_broker_files=bool(replicas) or _has_replicas(names),
        host=source.host(path, log),
    )


def _read_meta(disk: Disk, directory: str) -> Meta | None:
    path = f"{directory}/{META_PROPERTIES}"
    if not disk.exists(path):
        return None
    try:
        text = disk.read(path).decode("latin-1")
        return Meta(path=path, text={key: value.strip() for key, value in javaproperties.loads(text).items()})
    except OSError as bad:
        return Meta(path=path, problem=bad.strerror or str(bad))
    except ValueError as bad:
        return Meta(path=path, problem=str(bad))


def _read_replica(disk: Disk, directory: str, name: str, log_starts: Mapping[PartitionName, int]) -> Replica | None:
    """The partition directory of a user's topic; None for any other name."""
    partition = parse_partition_name(name)
    if partition is None or name == PARTITION_DIRECTORY:
        return None
    path = f"{directory}/{name}"
    try:
        names = disk.list(path)
    except (NotADirectoryError, FileNotFoundError):
        return None
    topic_id, topic_problem = _small_file(disk, f"{path}/{PARTITION_METADATA}", parse_partition_metadata)
    size = sum(file_bytes(disk, f"{path}/{one}") for one in names if one.endswith(".log"))
    # Kafka takes an empty file for one without epochs.
    epochs, epochs_problem = _small_file(
        disk, f"{path}/{EPOCHS_FILE}", lambda text: parse_epochs(text) if text else EpochHistory()
    )
    if size and not epochs_problem and (epochs is None or not epochs.entries):
        epochs_problem = f"{EPOCHS_FILE} has no epoch, and the log has records"
    return Replica(
        name=str(partition),
        path=path,
        suffix=partition.suffix,
        topic_id=topic_id,
        last_epoch=None if epochs is None else epochs.last_epoch,
        size_bytes=size,
        max_producer_id=_max_producer(disk, path, names),
        lacks_metadata=PARTITION_METADATA not in names,
        damage=tuple(problem for problem in (topic_problem, epochs_problem) if problem),
        lacking=_lacking(disk, path, names) if partition.topic == GROUPS and size else (),
        local_start=min((base for one in names if (base := parse_file_name(one)) is not None), default=None),
        log_start=log_starts.get(partition),
        remote=_remote(disk, path, names) if partition.topic == REMOTE and size else (),
    )


def _lacking(disk: Disk, path: str, names: Sequence[str]) -> tuple[str, ...]:
    # Loaded here, because few directories have groups.
    from kraft.operate.doctor.read_groups import lacking_records

    return lacking_records(disk, path, names)


def _remote(disk: Disk, path: str, names: Sequence[str]) -> tuple[RemoteSpan, ...]:
    # Loaded here, because few directories have tiered storage.
    from kraft.operate.doctor.read_remote import remote_spans

    return remote_spans(disk, path, names)


def _small_file(disk: Disk, path: str, parse: Callable[[bytes], T]) -> tuple[T | None, str]:
    """The content of a small file, None without one; and why it cannot be read."""
    try:
        return parse(disk.read(path)), ""
    except FileNotFoundError:
        return None, ""
    except MetadataLogError as bad:
        return None, f"{path.rpartition('/')[2]}: {bad.what}"
    except OSError as bad:
        return None, f"{path.rpartition('/')[2]}: {bad.strerror or bad}"


def _max_producer(disk: Disk, path: str, names: Sequence[str]) -> int | None:
    """The largest producer id in the producer snapshots of a partition; None without any."""
    snapshots = (f"{path}/{name}" for name in names if name.endswith(PRODUCER_SUFFIX))
    highest = max((read_producer_snapshot(disk.read(one), one)[0] for one in snapshots), default=-1)
    return None if highest < 0 else highest
