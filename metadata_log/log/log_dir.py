"""A log directory and its small files (Kafka: `Formatter`, `MetaProperties`, `PartitionMetadataFile`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from random import Random
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from metadata_log import java_properties, java_text
from metadata_log.disk import Disk, Lock, LockHeld, file_bytes, is_directory, make_directory, replace_file
from metadata_log.errors import DirectoryError
from metadata_log.log.snapshot import PARTIAL_SUFFIX, encode_snapshot, read_snapshot_values, snapshot_name
from metadata_log.log.snapshot_writer import SnapshotWriter
from metadata_log.printable import printable
from metadata_log.records.control import Endpoint, KRaftVersionFeature, VotersRecord, VotersRecordVoter
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import FeatureLevelRecord, UserScramCredentialRecord
from metadata_log.records.scram import SCRAM_SINCE
from metadata_log.releases import LATEST_RELEASE, METADATA_VERSION, METADATA_VERSIONS, feature_levels
from metadata_log.types import BOOTSTRAP_SNAPSHOT, PARTITION_DIRECTORY, Uuid, random_uuid
from metadata_log.zookeeper_mode import MIGRATE_FIRST

META_PROPERTIES: Final = "meta.properties"
BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
"""The first records of a cluster, as releases before 4.4 write them."""
SNAPSHOT_HOLDS_BOOTSTRAP_SINCE: Final = METADATA_VERSIONS["4.4-IV0"]
"""The first release whose nodes read the first records of a cluster in the snapshot of offset 0, epoch 0."""
PARTITION_METADATA: Final = "partition.metadata"
LOCK_FILE: Final = ".lock"
HOSTS: Final = "kraft.hosts"
"""The entry of meta.properties that says what the log is of."""
_REMEMBERED: Final = 64
"""How many parsed files are cached: a simulation opens the same few directories repeatedly."""
ARCHIVE_MANIFEST: Final = "manifest.json"
"""The marker of an archive: a directory that keeps a history and belongs to no node."""

_PARTITION_METADATA_TEXT: Final = f"version: 0\ntopic_id: {Uuid.METADATA_TOPIC}".encode("ascii")
_PARTITION_METADATA_LINE: Final = r"(\w+):[ \t\v\f]+(.+)"


def strange_cluster_id(cluster_id: str) -> str | None:
    """A warning of an id that servers take, and some tools of Kafka's do not; None for one that a tool has made."""
    try:
        Uuid.parse(cluster_id)
    except ValueError:
        return (
            f"cluster id {printable(cluster_id)} is not 16 bytes in URL-safe base64, as the ids of `kraft random-uuid` "
            "are: some tools refuse it, and it cannot change later"
        )
    return None


class MetaProperties(Struct, frozen=True, kw_only=True):
    """The owner of a directory: cluster and node. Directories written before 3.7 have no directory id."""

    cluster_id: str
    node_id: int
    directory_id: Uuid | None = None
    hosts: str | None = None
    """The kind of log, if a program that embeds a node has said so; Kafka has no such entry."""


class LogDirectory:
    """An open log directory of this process, locked until it is released."""

    def __init__(self, path: str, meta: MetaProperties, directory_id: Uuid, lock: Lock) -> None:
        self.path = path
        self.meta = meta
        self.directory_id = directory_id
        self._lock = lock

    @property
    def partition_path(self) -> str:
        """The path of the metadata log's partition directory."""
        return f"{self.path}/{PARTITION_DIRECTORY}"

    def release(self) -> None:
        """Release the lock of the directory."""
        self._lock.release()


# -------------------------------------------------------------------------------------------------- meta.properties


def format_meta_properties(meta: MetaProperties, now_ms: int) -> bytes:
    """The text of meta.properties (Java's `Properties.store`, which puts the time in its second line)."""
    entries = {"node.id": str(meta.node_id)}
    if meta.directory_id is not None:
        entries["directory.id"] = str(meta.directory_id)
    entries |= {"version": "1", "cluster.id": meta.cluster_id}
    if meta.hosts is not None:
        entries[HOSTS] = meta.hosts
    lines = ["#", java_properties.time_comment(now_ms)]
    lines += [java_properties.entry(key, value) for key, value in entries.items()]
    return ("\n".join(lines) + "\n").encode("latin-1")


@lru_cache(_REMEMBERED)
def parse_meta_properties(text: bytes, *, where: str | None = None) -> MetaProperties:
    """Read the text of meta.properties; raises `DirectoryError`."""

    def bad(what: str, field: str) -> DirectoryError:
        return DirectoryError(what, where=where, field=field, hint="Put the file back, or format another directory.")

    try:
        entries = {key: value for key, value, _ in java_properties.entries(text.decode("latin-1"))}
    except java_properties.BadEscape as damage:
        raise DirectoryError(f"this is not a properties file: {damage}", where=where) from damage
    if "version" not in entries:
        raise bad("the version is missing", "version")
    version = java_text.whole_number(java_text.trim(entries["version"]))
    if version == 0 and "broker.id" in entries:
        raise DirectoryError("this is the directory of a broker in ZooKeeper mode", where=where, hint=MIGRATE_FIRST)
    if version != 1:
        raise DirectoryError(
            f"unknown meta.properties version {entries['version']!r}",
            where=where,
            field="version",
            hint="Only version 1, of KRaft nodes, is known." if version == 0 else "Run the version that wrote it.",
        )
    for key in ("cluster.id", "node.id"):
        if not entries.get(key):
            raise bad(f"{key} is missing", key)
    node_id = java_text.whole_number(entries["node.id"])
    if node_id is None or node_id < 0:
        raise bad(f"{entries['node.id']!r} is not a node id", "node.id")
    directory_id = entries.get("directory.id")
    try:
        parsed = None if directory_id is None else Uuid.parse(directory_id)
    except ValueError as damage:
        raise bad(str(damage), "directory.id") from damage
    if parsed is not None and parsed.is_reserved:
        raise bad(f"{parsed} is reserved and can be no directory's id", "directory.id")
    return MetaProperties(
        cluster_id=entries["cluster.id"], node_id=node_id, directory_id=parsed, hosts=entries.get(HOSTS)
    )


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """The meta.properties of a log directory, or None for an unformatted directory; raises `DirectoryError`."""
    path = f"{directory}/{META_PROPERTIES}"
    return parse_meta_properties(disk.read(path), where=path) if disk.exists(path) else None


# ----------------------------------------------------------------------------------------------- format and opening


def check_formatted(disk: Disk, directories: Sequence[str], *, node_id: int, cluster_id: str) -> list[str]:
    """The formatted ones of a node's log directories, all of them for this node and this cluster.

    Raises `DirectoryError` for a directory of another node or cluster, for an unreadable meta.properties, and for two
    directories with one id (Kafka: `MetaPropertiesEnsemble.verify`).
    """
    formatted = [directory for directory in directories if disk.exists(f"{directory}/{META_PROPERTIES}")]
    owners: dict[Uuid, str] = {}
    for directory in formatted:
        directory_id = _checked_meta(disk, directory, node_id, cluster_id).directory_id
        if directory_id is not None and owners.setdefault(directory_id, directory) != directory:
            raise DirectoryError(
                f"the directory has the id {directory_id}, which {owners[directory_id]} has, too",
                where=f"{directory}/{META_PROPERTIES}",
                field="directory.id",
                hint="One directory is a copy of the other: give the node an empty directory instead.",
            )
    return formatted


def first_voter(node_id: int, directory_id: Uuid, listener: str, host: str, port: int) -> VotersRecordVoter:
    """One of the first voters of a dynamic quorum, with the name and the address of its listener for the others."""
    return VotersRecordVoter(
        voter_id=node_id,
        voter_directory_id=directory_id,
        endpoints=(Endpoint(name=listener, host=host, port=port),),
        kraft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
    )


_LEAVE_IT: Final = "Use --ignore-formatted, in Python ignore_formatted=True, to leave it as it is."


def already_formatted(directory: str, hint: str = _LEAVE_IT) -> DirectoryError:
    """The error for a directory that is formatted already."""
    return DirectoryError("the log directory is already formatted", where=directory, hint=hint)


def format_directory(
    disk: Disk,
    directory: str,
    *,
    node_id: int,
    cluster_id: str,
    rng: Random,
    now_ms: int,
    release: str = LATEST_RELEASE,
    features: Mapping[str, int] | None = None,
    dynamic: bool = False,
    initial_voters: VotersRecord | None = None,
    is_controller: bool = True,
    credentials: Sequence[UserScramCredentialRecord] = (),
    hosts: str | None = None,
    ignore_formatted: bool = False,
) -> bool:
    """Format a log directory for a node, as kafka-storage does (Kafka: `Formatter`).

    Args:
        disk: The disk.
        directory: The log directory.
        node_id: The id of the node.
        cluster_id: The id of the cluster.
        rng: The source of the directory's id and of salts.
        now_ms: The time in meta.properties and in the first records.
        release: The release, such as `4.3`, or the metadata.version of the cluster.
        features: The levels of other features, by name; None for the defaults of the release.
        dynamic: Whether the directory is for a dynamic quorum (KIP-853).
        initial_voters: The first voters of a dynamic quorum, written as a snapshot. A node among them takes its
            directory id from them.
        is_controller: Whether the directory holds the metadata log of a controller. From 4.4 on only such a directory
            has the first records of a cluster.
        credentials: SCRAM credentials to begin with.
        hosts: What the log is of, if that is known already; see `MetaProperties.hosts`.
        ignore_formatted: Whether to leave a formatted directory as it is.

    Returns:
        False if the directory was formatted before and `ignore_formatted` is set, else True.

    Raises:
        DirectoryError: The directory is formatted, or belongs to another node or cluster; or the release or a feature
            is unknown.
    """
    assert dynamic or initial_voters is None, "a static quorum has its voters in the configuration"
    levels = feature_levels(release, features, dynamic=dynamic)
    if credentials and dict(levels)[METADATA_VERSION] < SCRAM_SINCE:
        raise DirectoryError(
            f"credentials need metadata.version 3.5-IV2, not {release}", hint="Choose a later release version."
        )
    if check_formatted(disk, [directory], node_id=node_id, cluster_id=cluster_id):
        if ignore_formatted:
            return False
        raise already_formatted(directory)
    make_log_directory(disk, directory)
    first = [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels]
    values = [encode_record(record, 0) for record in (*first, *credentials)]
    in_snapshot = dict(levels)[METADATA_VERSION] >= SNAPSHOT_HOLDS_BOOTSTRAP_SINCE
    if not in_snapshot:
        # Controllers before 4.4 ignore the records in the snapshot, and would begin at their own newest release.
        replace_file(disk, directory, BOOTSTRAP_CHECKPOINT, encode_snapshot(values, epoch=0, timestamp_ms=now_ms))
    if initial_voters is not None or (in_snapshot and is_controller):
        held = values if in_snapshot else []
        _write_bootstrap_snapshot(disk, f"{directory}/{PARTITION_DIRECTORY}", held, initial_voters, now_ms)
    directory_id = random_uuid(rng)
    if initial_voters is not None:
        own = [voter.voter_directory_id for voter in initial_voters.voters if voter.voter_id == node_id]
        directory_id = own[0] if own else directory_id
    # Last: a directory with this file counts as formatted.
    meta = MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id=directory_id, hosts=hosts)
    replace_file(disk, directory, META_PROPERTIES, format_meta_properties(meta, now_ms))
    return True


def _write_bootstrap_snapshot(
    disk: Disk, partition_directory: str, values: Sequence[bytes], voters: VotersRecord | None, now_ms: int
) -> None:
    """Write the snapshot before the first record (`Formatter.writeBoostrapSnapshot`): first records, first voters."""
    make_directory(disk, partition_directory)
    writer = SnapshotWriter(
        disk,
        partition_directory,
        BOOTSTRAP_SNAPSHOT,
        timestamp_ms=now_ms,
        last_contained_log_timestamp=now_ms,
        kraft_version=0 if voters is None else 1,
        voters=voters,
    )
    writer.append(values, now_ms)
    writer.freeze(now_ms)


def open_directory(
    disk: Disk, directory: str, *, node_id: int, rng: Random, now_ms: int, cluster_id: str | None = None
) -> LogDirectory:
    """Lock a formatted directory and check its owner.

    Args:
        disk: The disk.
        directory: The log directory.
        node_id: The id of this node.
        rng: The source of a missing directory id.
        now_ms: The time in a rewritten meta.properties.
        cluster_id: The id of the cluster; None for any cluster.

    Returns:
        The directory. A directory without an id gets one.

    Raises:
        DirectoryError: The directory is not formatted, is locked, is a file, or belongs to another node or cluster.
    """
    if disk.exists(directory):
        check_directory(disk, directory)
    if not disk.exists(f"{directory}/{META_PROPERTIES}"):
        raise DirectoryError(
            f"the log directory is not formatted: it has no {META_PROPERTIES}",
            where=directory,
            hint="Run `kraft format -c CONFIG --cluster-id ID` first, or call kraft.format(config, cluster_id).",
        )
    lock = take_lock(disk, directory)
    try:
        meta = _checked_meta(disk, directory, node_id, cluster_id)
        directory_id = meta.directory_id
        if directory_id is None:
            directory_id = random_uuid(rng)
            meta = replace(meta, directory_id=directory_id)
            replace_file(disk, directory, META_PROPERTIES, format_meta_properties(meta, now_ms))
        opened = LogDirectory(directory, meta, directory_id, lock)
        make_directory(disk, opened.partition_path)
        # A process that ended before this fsync left a directory that a power failure would remove with its content.
        disk.fsync_dir(directory)
        ensure_partition_metadata(disk, opened.partition_path)
    except BaseException:
        lock.release()
        raise
    return opened


@contextmanager
def locked_to_format(disk: Disk, directory: str) -> Iterator[None]:
    """Make a directory, and lock it for the duration of the block, in which it is formatted unless it is already.

    Without the lock two processes that find no node here both put one there. What another node has left must not become
    the log of a new one, either.

    Raises:
        DirectoryError: Another process holds the lock; there is a log or a snapshot, and no meta.properties; or a part
            of the path is a file.
    """
    make_log_directory(disk, directory)
    lock = take_lock(disk, directory)
    try:
        partition = f"{directory}/{PARTITION_DIRECTORY}"
        if not disk.exists(f"{directory}/{META_PROPERTIES}") and disk.exists(partition):
            # An interrupted format leaves no more than this, and the next one writes it anew.
            bootstrap = snapshot_name(BOOTSTRAP_SNAPSHOT)
            left = [one for one in disk.list(partition) if one != bootstrap and not one.endswith(PARTIAL_SUFFIX)]
            if left:
                raise DirectoryError(
                    f"there is a metadata log, and no {META_PROPERTIES}",
                    where=f"{partition}/{min(left)}",
                    hint=f"Put {META_PROPERTIES} back if a node was here; else give an empty directory. An interrupted "
                    "restore leaves such a directory: remove it, and restore again.",
                )
        yield
    finally:
        lock.release()


def make_log_directory(disk: Disk, directory: str) -> None:
    """Make a log directory and its parents, unless it is there.

    Raises:
        DirectoryError: A part of the path is a file.
    """
    try:
        make_directory(disk, directory)
    except (FileExistsError, NotADirectoryError) as bad:
        raise _is_file(bad.filename or directory) from bad
    check_directory(disk, directory)


def check_directory(disk: Disk, directory: str) -> None:
    """Raise `DirectoryError` if what should be a log directory is a file."""
    if not is_directory(disk, directory):
        raise _is_file(directory)


def _is_file(path: str) -> DirectoryError:
    return DirectoryError(
        "a log directory is wanted, and this is a file",
        where=path,
        hint="Name a directory, which need not exist yet, or move the file away.",
    )


def is_unused(disk: Disk, directory: str) -> bool:
    """Whether a log directory has no metadata log yet, or none with a record."""
    partition = f"{directory}/{PARTITION_DIRECTORY}"
    names = disk.list(partition) if disk.exists(partition) else []
    return not any(file_bytes(disk, f"{partition}/{name}") for name in names if name.endswith(".log"))


def note_what_it_hosts(disk: Disk, directory: str, hosts: str, now_ms: int) -> None:
    """Write into meta.properties what the log of this directory is of, whose lock the caller has; unless it says so."""
    meta = read_meta_properties(disk, directory)
    if meta is not None and meta.hosts is None:
        replace_file(disk, directory, META_PROPERTIES, format_meta_properties(replace(meta, hosts=hosts), now_ms))


def take_lock(disk: Disk, directory: str) -> Lock:
    """Take the lock of a log directory (Kafka: `LogManager.lockLogDirs`).

    Raises:
        DirectoryError: Another process holds the lock.
    """
    try:
        return disk.lock(f"{directory}/{LOCK_FILE}")
    except BlockingIOError as held:
        who = _node_in(disk, directory)
        by = f" ({held.words})" if isinstance(held, LockHeld) and held.words else ""
        raise DirectoryError(
            f"the log directory is locked by another process{by}" if who is None else f"{who} runs already{by}",
            where=directory,
            hint="Another node, of this software or of a JVM, uses the directory: stop that node first.",
        ) from held


def check_unlocked(disk: Disk, directory: str) -> None:
    """Raise `DirectoryError` if another process holds the lock of a log directory."""
    if disk.exists(f"{directory}/{LOCK_FILE}"):
        take_lock(disk, directory).release()


def _node_in(disk: Disk, directory: str) -> str | None:
    """The node of a directory, for sentences; None if its meta.properties does not tell."""
    try:
        meta = read_meta_properties(disk, directory)
    except (DirectoryError, OSError):
        return None
    return None if meta is None else f"node {meta.node_id} of this directory"


def _checked_meta(disk: Disk, directory: str, node_id: int, cluster_id: str | None) -> MetaProperties:
    path = f"{directory}/{META_PROPERTIES}"
    meta = parse_meta_properties(disk.read(path), where=path)
    if meta.node_id != node_id:
        raise DirectoryError(
            f"the directory belongs to node {meta.node_id}, not to node {node_id}",
            where=path,
            field="node.id",
            hint="Check node.id and log.dirs in the configuration; a new node needs an empty directory.",
        )
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise DirectoryError(
            f"the directory belongs to cluster {meta.cluster_id}, not to {cluster_id}",
            where=path,
            field="cluster.id",
            hint="Check log.dirs in the configuration. All nodes of a cluster have one id; a new cluster has a new "
            "one, of `kraft random-uuid`, and empty directories.",
        )
    return meta


def ensure_partition_metadata(disk: Disk, partition_directory: str) -> None:
    """Write partition.metadata if it is missing; raises `DirectoryError` if it names another topic."""
    path = f"{partition_directory}/{PARTITION_METADATA}"
    if not disk.exists(path):
        replace_file(disk, partition_directory, PARTITION_METADATA, _PARTITION_METADATA_TEXT)
        return
    topic_id = parse_partition_metadata(disk.read(path), where=path)
    if topic_id != Uuid.METADATA_TOPIC:
        raise DirectoryError(
            f"the directory holds topic {topic_id}, not the metadata topic {Uuid.METADATA_TOPIC}",
            where=path,
            field="topic_id",
        )


def parse_partition_metadata(text: bytes, *, where: str | None = None) -> Uuid:
    """The topic id in a partition.metadata file; raises `DirectoryError`. Text after the two lines is ignored."""
    lines = iter(java_text.lines(text.decode("utf-8", "replace")))

    def value(name: str) -> str:
        found = re.fullmatch(_PARTITION_METADATA_LINE, next(lines, ""))
        if found is None or found[1] != name:
            raise DirectoryError(f"a line with the {name} is missing", where=where, field=name)
        return found[2]

    version = value("version")
    number = java_text.whole_number(version)
    if number is None or number < 0:  # as in Kafka: a later version has these two lines, too
        raise DirectoryError(f"unknown version {version!r}", where=where, field="version")
    try:
        topic_id = Uuid.parse(value("topic_id"))
    except ValueError as bad:
        raise DirectoryError(str(bad), where=where, field="topic_id") from bad
    if topic_id == Uuid.ZERO:
        raise DirectoryError("the topic id is zero", where=where, field="topic_id")
    return topic_id


def read_bootstrap(disk: Disk, directory: str) -> tuple[tuple[str, bytes], ...]:
    """The framed metadata records that a new cluster begins with, each with its file; none without such a file.

    The snapshot of offset 0 has precedence, if it holds any (Kafka: `QuorumMetaLogListener.handleLoadBootstrap`).
    Raises `CorruptBatch`.
    """
    snapshot = f"{directory}/{PARTITION_DIRECTORY}/{snapshot_name(BOOTSTRAP_SNAPSHOT)}"
    return _data_records(disk, snapshot) or _data_records(disk, f"{directory}/{BOOTSTRAP_CHECKPOINT}")


def _data_records(disk: Disk, path: str) -> tuple[tuple[str, bytes], ...]:
    """The records of a snapshot but for control records; none if there is no such file."""
    if not disk.exists(path):
        return ()
    return tuple((path, value) for value in read_snapshot_values(disk, path))
