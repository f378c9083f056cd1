"""The facts about each node and the whole cluster before any check runs, and the answers of live controllers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

from msgspec import Struct

from kraft.config.addresses import QuorumVoter
from kraft.config.node_settings import is_of_zookeeper
from kraft.operate.doctor.facts.log_facts import ImageFacts, LogFacts, NamedVoter, VoterChange
from kraft.operate.doctor.facts.settings import VOTERS, Settings
from kraft.quorum.voters import majority
from metadata_log.java_text import whole_number
from metadata_log.log.epochs import EpochHistory
from metadata_log.types import Uuid

FETCHES_MS: Final = 10_000
"""A replica without a fetch for that long is gone: replicas fetch twice a second, even if there are no records."""


class LiveReplica(Struct, frozen=True, kw_only=True):
    """A voter or an observer as the leader reports it; None means "not known to the leader"."""

    id: int
    directory_id: Uuid
    log_end_offset: int
    caught_up_ms_ago: int | None = None
    fetched_ms_ago: int | None = None


class LiveAnswer(Struct, frozen=True, kw_only=True):
    """The answer of one controller that was asked directly.

    Args:
        id: The id of the controller; -1 if only its address is known.
        address: The address; empty if it is not known.
        problem: Why there is no answer; empty if there is one.
        epoch: The epoch of the controller.
        leader_id: The leader that the controller knows; -1 for none.
    """

    id: int
    address: str
    problem: str = ""
    epoch: int = -1
    leader_id: int = -1


class LiveFacts(Struct, frozen=True, kw_only=True):
    """A live quorum. Without a leader, `leader_id` is -1 and the replicas are empty."""

    bootstrap: str
    cluster_id: str = ""
    leader_id: int = -1
    leader_epoch: int = -1
    high_watermark: int = -1
    voters: tuple[LiveReplica, ...] = ()
    observers: tuple[LiveReplica, ...] = ()
    answers: tuple[LiveAnswer, ...] = ()
    epochs_seen: tuple[int, ...] = ()
    """The epochs that were seen while the cluster was watched, oldest first."""
    clock_ms: int | None = None
    """The difference between the time of the leader's newest record and the clock of this host."""
    problem: str = ""
    """Why the leader could not be asked."""

    @property
    def fetching(self) -> tuple[LiveReplica, ...]:
        """The observers that fetch now. A leader of Kafka lists an observer for five minutes after its last fetch."""
        return tuple(one for one in self.observers if one.fetched_ms_ago is None or one.fetched_ms_ago <= FETCHES_MS)

    @property
    def leader(self) -> LiveReplica | None:
        """The leader among the voters."""
        return next((one for one in self.voters if one.id == self.leader_id), None)


BROKER: Final = "broker"
CONTROLLER: Final = "controller"


class Meta(Struct, frozen=True, kw_only=True):
    """A meta.properties file as it stands on the disk. `problem` says why it cannot be read."""

    path: str
    text: dict[str, str] = {}
    problem: str = ""

    @property
    def version(self) -> int | None:
        """The version; None if it is missing or no number."""
        return _number(self.text.get("version", ""))

    @property
    def node_id(self) -> int | None:
        """The node id, in version 0 the broker id; None if it is missing or no number."""
        return _number(self.text.get("node.id", self.text.get("broker.id", "")))

    @property
    def is_of_zookeeper(self) -> bool:
        """Whether a broker in ZooKeeper mode wrote the file."""
        return self.version == 0 and "broker.id" in self.text and not self.problem

    @property
    def cluster_id(self) -> str:
        """The cluster id; empty if it is missing."""
        return self.text.get("cluster.id", "")

    @property
    def directory_id(self) -> Uuid | None:
        """The directory id; None if it is missing, no id, or reserved."""
        try:
            parsed = Uuid.parse(self.text.get("directory.id", ""))
        except ValueError:
            return None
        return None if parsed.is_reserved else parsed


def _number(text: str) -> int | None:
    number = whole_number(text.strip())
    return None if number is None or number < 0 else number


class RemoteSpan(Struct, frozen=True, kw_only=True):
    """Offsets of a partition, the last one included, that segments in tiered storage hold without a gap."""

    topic_id: Uuid
    partition: int
    first: int
    last: int
    segments: int
    size_bytes: int


class Replica(Struct, frozen=True, kw_only=True):
    """The directory of a user's partition on a broker.

    Args:
        name: The topic and the number, such as `orders-0`.
        path: The directory.
        suffix: `stray`, `delete` or `future`; empty for a replica in use.
        topic_id: The topic id of partition.metadata; None if the file is missing or damaged.
        last_epoch: The last epoch of leader-epoch-checkpoint; None without one.
        size_bytes: The size of its files.
        max_producer_id: The largest id in the producer snapshots; None without one.
        lacks_metadata: Whether partition.metadata is missing.
        damage: The small files that no broker can use, each with the reason.
        lacking: Of a partition of groups, what its records follow on and the log lacks.
        local_start: The first offset of its first segment; None without one.
        log_start: The log start in the directory's log-start-offset-checkpoint; None without one.
        remote: Of a partition of `__remote_log_metadata`, what it says to be remote, by partition and offset.
    """

    name: str
    path: str
    suffix: str = ""
    topic_id: Uuid | None = None
    last_epoch: int | None = None
    size_bytes: int = 0
    max_producer_id: int | None = None
    lacks_metadata: bool = False
    damage: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    local_start: int | None = None
    log_start: int | None = None
    remote: tuple[RemoteSpan, ...] = ()

    @property
    def number(self) -> int:
        """The number of the partition."""
        return int(self.name.rpartition("-")[2])


class ReplicaEnd(Struct, frozen=True, kw_only=True):
    """Where the log of one replica of a partition ends, and its leader epochs (leader-epoch-checkpoint)."""

    broker: int
    epochs: EpochHistory
    log_end: int


class OpenFile(Struct, frozen=True):
    """A file with too wide or too narrow access rights; `mode` is its permission bits."""

    path: str
    mode: int
    what: str


class HostFacts(Struct, frozen=True, kw_only=True):
    """The host's facts about the file system of a log directory. Sizes are bytes; None means "not known"."""

    free_bytes: int
    total_bytes: int
    free_inodes: int | None = None
    total_inodes: int | None = None
    owners: tuple[int, ...] = ()
    """The user ids that own the files."""
    is_writable: bool = True
    """Whether the owner of the directory may write it."""
    readable_by_others: tuple[OpenFile, ...] = ()
    """Segments and snapshots that every user of the host may read."""


class Directory(Struct, frozen=True, kw_only=True):
    """One log directory of a node."""

    path: str
    exists: bool = True
    is_metadata: bool = False
    """Whether the node keeps its metadata log here: by its settings, or because the log is here."""
    meta: Meta | None = None
    may_lack_meta: bool = False
    """Whether only the partition directory was given, so that a missing meta.properties means nothing."""
    log: LogFacts | None = None
    replicas: tuple[Replica, ...] = ()
    foreign: tuple[str, ...] = ()
    """The names of the directories that are no partitions."""
    has_broker_files: bool = False
    host: HostFacts | None = None


class Node(Struct, frozen=True, kw_only=True):
    """One node: its settings and its log directories, as far as they were given."""

    name: str
    settings: Settings | None = None
    directories: tuple[Directory, ...] = ()
    host: str = ""
    """The host that a bundle was collected on; empty for this host."""
    files: tuple[OpenFile, ...] = ()
    """Files named by the settings, and the settings' own file, that every user of the host may read."""

    @property
    def metadata_directory(self) -> Directory | None:
        """The directory of the metadata log."""
        return next((one for one in self.directories if one.is_metadata), None)

    @property
    def log(self) -> LogFacts | None:
        """The copy of the metadata log."""
        directory = self.metadata_directory
        return None if directory is None else directory.log

    @property
    def meta(self) -> Meta | None:
        """The meta.properties beside the metadata log, or else of the first directory that has one."""
        directories = sorted(self.directories, key=lambda one: not one.is_metadata)
        return next((one.meta for one in directories if one.meta is not None), None)

    @property
    def id(self) -> int | None:
        """The node id, of meta.properties or else of the settings."""
        meta = self.meta
        node_id = None if meta is None else meta.node_id
        return node_id if node_id is not None else None if self.settings is None else self.settings.node_id

    @property
    def directory_id(self) -> Uuid | None:
        """The id of the directory of the metadata log."""
        directory = self.metadata_directory
        return None if directory is None or directory.meta is None else directory.meta.directory_id

    @property
    def in_zookeeper_mode(self) -> bool:
        """Whether the node is in ZooKeeper mode: by its settings, or by a directory that no node in KRaft mode used."""
        if self.settings is not None and is_of_zookeeper(self.settings.values):
            return True
        return self.log is None and any(one.meta is not None and one.meta.is_of_zookeeper for one in self.directories)

    @property
    def has_broker_files(self) -> bool:
        """Whether a directory holds files that only brokers have."""
        return any(one.has_broker_files for one in self.directories)


class Quorum(Struct, frozen=True, kw_only=True):
    """The voter set that counts, and where it stands. `voters` is empty if nothing names them."""

    kraft_version: int | None
    voters: tuple[NamedVoter, ...]
    where: str

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the voters."""
        return tuple(one.id for one in self.voters)

    @property
    def majority(self) -> int:
        """The number of voters in a majority."""
        return majority(len(self.voters))

    def find(self, node_id: int | None) -> NamedVoter | None:
        """The voter with an id."""
        return next((one for one in self.voters if one.id == node_id), None)


class Facts(Struct, frozen=True, kw_only=True, dict=True):
    """Everything that the checks may read."""

    nodes: tuple[Node, ...] = ()
    image: ImageFacts | None = None
    live: LiveFacts | None = None
    names: dict[str, tuple[str, ...]] | None = None
    """The addresses of host names; none for a name that does not resolve. None if no name was looked up."""
    replica_ends: dict[str, tuple[ReplicaEnd, ...]] = {}
    """The ends of replicas by partition (`orders-0`), as far as log directories of brokers were read for that."""

    def configured(self) -> Iterator[tuple[Node, Settings]]:
        """The nodes whose settings are known."""
        for node in self.nodes:
            if node.settings is not None:
                yield node, node.settings

    @cached_property
    def best(self) -> Node | None:
        """The node with the copy of the log that ranks first: a controller if any has a log, else a broker."""
        with_log = [one for one in self.nodes if one.log is not None and not one.log.is_empty]
        first = [one for one in with_log if self.is_controller(one)] or with_log
        return max(first, key=_position, default=None)

    @cached_property
    def quorum(self) -> Quorum:
        """The voters of the best copy, or else of the settings, or else of the last LeaderChange record."""
        best = self.best
        log = None if best is None else best.log
        version = self._formatted_version if log is None else log.kraft_version
        if version != 0 and (change := _latest_voters(self, log)) is not None:
            where = f"{change.where}: VotersRecord at {change.offset}"
            return Quorum(kraft_version=1, voters=change.voters, where=where)
        static = next(
            ((one.settings, one.settings.voters) for one in self.nodes if one.settings and one.settings.voters), None
        )
        if static is not None:
            return Quorum(kraft_version=version, voters=_of_static(static[1]), where=static[0].where(VOTERS))
        if log is not None and log.elections:
            last = log.elections[-1]
            named = tuple(NamedVoter(id=one) for one in last.voters)
            return Quorum(
                kraft_version=version, voters=named, where=f"{log.path}: LeaderChange record at {last.offset}"
            )
        if self.live is not None and self.live.voters:
            return _of_live(self.live)
        return Quorum(kraft_version=version, voters=(), where="nothing names the voters")

    @property
    def _formatted_version(self) -> int | None:
        """The level of kraft.version in logs that are still empty."""
        versions = [one.log.kraft_version for one in self.nodes if one.log is not None]
        return next((one for one in versions if one is not None), None)

    def roles(self, node: Node) -> tuple[str, ...]:
        """The roles of a node, by its settings or else by its files."""
        if node.settings is not None and node.settings.roles:
            return node.settings.roles
        if not node.has_broker_files:
            return (CONTROLLER,)
        log = node.log
        voters = {voter for change in ([] if log is None else log.elections[-1:]) for voter in change.voters}
        return (BROKER, CONTROLLER) if node.id in voters else (BROKER,)

    def is_controller(self, node: Node) -> bool:
        """Whether a node has the role of a controller."""
        return CONTROLLER in self.roles(node)

    def is_broker(self, node: Node) -> bool:
        """Whether a node has the role of a broker."""
        return BROKER in self.roles(node)

    @cached_property
    def controllers(self) -> tuple[Node, ...]:
        """The nodes with the role of a controller."""
        return tuple(one for one in self.nodes if self.is_controller(one))

    @cached_property
    def brokers(self) -> tuple[Node, ...]:
        """The nodes with the role of a broker."""
        return tuple(one for one in self.nodes if self.is_broker(one))


def _position(node: Node) -> tuple[int, int]:
    assert node.log is not None
    return node.log.last_epoch, node.log.end_offset


def _latest_voters(facts: Facts, log: LogFacts | None) -> VoterChange | None:
    if log is not None:
        return log.voter_change
    return next((one.log.voter_change for one in facts.nodes if one.log is not None and one.log.voter_change), None)


def _of_live(live: LiveFacts) -> Quorum:
    """The voters as the leader names them; in a static quorum their directory ids are not known."""
    is_dynamic = any(one.directory_id != Uuid.ZERO for one in live.voters)
    return Quorum(
        kraft_version=1 if is_dynamic else 0,
        voters=tuple(NamedVoter(id=one.id, directory_id=one.directory_id) for one in live.voters),
        where=f"{live.bootstrap}: DescribeQuorum",
    )


def _of_static(voters: tuple[QuorumVoter, ...]) -> tuple[NamedVoter, ...]:
    return tuple(NamedVoter(id=one.id, endpoints=(("", one.host, one.port),)) for one in voters)
