"""Reads the rows of a history one by one, and keeps the data for plots and tables.

Memory is bounded by the size of the page, apart from one entry for each leadership of a partition.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from metadata_log.cluster_names import ClusterNames
from metadata_log.history import VIEWS

TABLE_ROWS: Final = 200
"""The most rows of a table: the latest ones."""

TIMES: Final = {"valid_from", "valid_to", "timestamp", "from_time", "to_time"}
"""The columns that are displayed as times."""

Row = tuple[Any, ...]
"""A row of a view of `metadata_log.history.views`, in the order of its columns."""


class Span(NamedTuple):
    """A state from `begin` to `end`, in milliseconds; None = still."""

    begin: int
    end: int | None
    what: Any


class Outage(NamedTuple):
    """An interval in which a partition could not be written to, or not safely."""

    cluster: str
    topic: str
    partition: int
    begin: int
    end: int | None
    cause: str = "unknown"
    broker: int | None = None
    why: str = ""
    offset: int | None = None
    """The offset of the causing record."""


class Fencing(NamedTuple):
    """An interval in which a broker was fenced after an event, not after its first registration."""

    cluster: str
    broker: int
    begin: int
    end: int | None
    cause: str


class Table:
    """The displayed rows: the latest of all rows."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self.seen = 0
        self._latest: deque[tuple[Any, ...]] = deque(maxlen=TABLE_ROWS)

    def take(self, row: tuple[Any, ...]) -> None:
        """Add this row; above the limit, drop the oldest one."""
        self.seen += 1
        self._latest.append(row)

    def rows(self) -> list[tuple[Any, ...]]:
        """The displayed rows by time."""
        at = next((place for place, column in enumerate(self.columns) if column in TIMES), None)
        return list(self._latest) if at is None else sorted(self._latest, key=lambda row: row[at] or 0)


def columns_of(view: str) -> dict[str, int]:
    """The position of each column of a view in its rows."""
    return {name: at for at, name in enumerate(VIEWS[view].names)}


class ReportData:
    """The collected data of a directory, or of several clusters."""

    def __init__(self, names: ClusterNames | None = None) -> None:
        self._names = names or ClusterNames()
        self.ids: dict[str, str] = {}
        """The ids of the clusters that have a name, by name."""
        self.environments: dict[str, str | None] = {}
        """The environments of the clusters, as far as they are known."""
        self.begin: int | None = None
        self.end: int | None = None
        self.clusters: dict[str, None] = {}
        self.ends: dict[str, int] = {}
        """The last known time of each cluster; the state after that time is unknown."""
        self.leaders: dict[tuple[str, int], list[Span]] = {}
        """The leaders of each partition, in order; -1 is no leader."""
        self.under_replicated: list[Span] = []
        self.outages: dict[str, list[Outage]] = {"leaderless": [], "below-min-isr": []}
        self.fencings: list[Fencing] = []
        self.unknown_ranges = 0
        """The ranges of the log about which nothing is known."""
        self.brokers: dict[int, list[Span]] = {}
        self.topics: dict[str, list[Span]] = {}
        self.terms: list[tuple[str, Span]] = []
        """The active controllers, by cluster."""
        self.gaps: list[tuple[str, Span, str]] = []
        """The gaps without an active controller: cluster, time with its seconds, kind."""
        self.moves: list[tuple[str, str, int]] = []
        """Changes of leadership: cluster, topic, time."""
        self.causes: Counter[tuple[str, str]] = Counter()
        """Changes of leadership by cluster and cause."""
        self.examples: dict[str, str] = {}
        """A sentence for each cause."""
        self.churn: Counter[tuple[str, str, str]] = Counter()
        """Partition changes by cluster, kind and name."""
        self.totals: dict[str, dict[str, float]] = {}
        """Totals by cluster: numbers of events, and durations."""
        self.tables: dict[str, Table] = {}
        self._texts: dict[str, str] = {}
        self._known: dict[str, str] = {}
        self._take: dict[str, Callable[[Row], None]] = {
            name: getattr(self, f"_{name}") for name in VIEWS if hasattr(self, f"_{name}")
        }
        self._at = {name: columns_of(name) for name in self._take}

    def take_all(self, rows: Iterable[tuple[str, Row]]) -> None:
        """Read rows of any views; rows of unused views are ignored."""
        for view, row in rows:
            take = self._take.get(view)
            if take is not None:
                name = self._known.get(row[0]) or self._know(row[0])
                take(row if name == row[0] else (name, *row[1:]))

    def _know(self, cluster: str) -> str:
        """The name of a cluster that appears for the first time; a cluster without a name keeps its id."""
        name = self._known[cluster] = self._names.name(cluster)
        self.clusters.setdefault(name)
        self.environments[name] = self._names.environment(cluster)
        if name != cluster:
            self.ids[name] = cluster
        return name

    def span(self) -> tuple[int, int]:
        """The time from the first to the last event, at least a second."""
        begin = self.begin or 0
        return begin, max(self.end or 0, begin + 1000)

    def total(self, name: str) -> float:
        """A number over all clusters."""
        return sum(each.get(name, 0) for each in self.totals.values())

    # ------------------------------------------------------------------------------------------ rows of each view

    def _moment(self, cluster: str, timestamp: int | None) -> None:
        if timestamp is not None and timestamp >= 0:
            self.ends[cluster] = max(timestamp, self.ends.get(cluster, timestamp))
            self.begin = timestamp if self.begin is None or timestamp < self.begin else self.begin
            self.end = timestamp if self.end is None or timestamp > self.end else self.end

    def _validity(self, at: dict[str, int], row: Row, what: Any) -> Span:
        begin, end = row[at["valid_from"]], row[at["valid_to"]]
        self._moment(row[0], begin)
        self._moment(row[0], end)
        return Span(begin, end, what)

    def _count(self, row: Row, name: str, amount: float = 1) -> None:
        of_cluster = self.totals.setdefault(row[0], {})
        of_cluster[name] = of_cluster.get(name, 0) + amount

    def _table(self, name: str, view: str, row: Row, columns: tuple[str, ...]) -> None:
        at = self._at[view]
        table = self.tables.get(name)
        if table is None:
            table = self.tables[name] = Table(columns)
        table.take(tuple(row[at[column]] for column in columns))

    def _leader_history(self, row: Row) -> None:
        at = self._at["leader_history"]
        span = self._validity(at, row, row[at["leader"]])
        led = self.leaders.setdefault((row[at["topic"]], row[at["partition"]]), [])
        if led and led[-1].what == span.what and led[-1].end == span.begin:
            led[-1] = Span(led[-1].begin, span.end, span.what)
        else:
            led.append(span)

    def _isr_history(self, row: Row) -> None:
        at = self._at["isr_history"]
        span = self._validity(at, row, None)
        if len(row[at["isr"]]) < len(row[at["replicas"]]):
            self.under_replicated.append(span)

    def _broker_history(self, row: Row) -> None:
        at = self._at["broker_history"]
        state = "active"
        if row[at["in_controlled_shutdown"]]:
            state = "shutting down"
        elif row[at["fenced"]]:
            state = "fenced"
        seen = self.brokers.setdefault(row[at["broker"]], [])
        span = self._validity(at, row, state)
        if seen and seen[-1].what == state and seen[-1].end == span.begin:
            seen[-1] = Span(seen[-1].begin, span.end, state)
        else:
            seen.append(span)

    def _topic_history(self, row: Row) -> None:
        at = self._at["topic_history"]
        self.topics.setdefault(row[at["topic"]], []).append(self._validity(at, row, row[at["partitions"]]))

    def _config_history(self, row: Row) -> None:
        at = self._at["config_history"]
        self._validity(at, row, None)
        if row[at["cause"]] != "snapshot":
            columns = ("valid_from", "resource_type", "resource_name", "key", "previous_value", "value")
            self._table("configs", "config_history", row, columns)

    def _acl_history(self, row: Row) -> None:
        at = self._at["acl_history"]
        self._validity(at, row, None)
        columns = ("valid_from", "valid_to", "principal", "permission", "operation", "resource_type", "resource_name")
        self._table("acls", "acl_history", row, columns)

    def _feature_history(self, row: Row) -> None:
        self._validity(self._at["feature_history"], row, None)
        self._table("features", "feature_history", row, ("valid_from", "feature", "previous_level", "level", "release"))

    def _quorum_epochs(self, row: Row) -> None:
        at = self._at["quorum_epochs"]
        self.terms.append((row[0], self._validity(at, row, row[at["leader_id"]])))
        columns = ("cluster", "valid_from", "valid_to", "quorum_epoch", "leader_id", "previous_leader_id")
        self._table("terms", "quorum_epochs", row, (*columns, "silence_seconds"))

    def _controller_gaps(self, row: Row) -> None:
        at = self._at["controller_gaps"]
        self.gaps.append((row[0], self._validity(at, row, row[at["seconds"]]), row[at["kind"]]))
        self._count(row, "controller gaps")
        self._count(row, "seconds without a controller", row[at["seconds"]])
        columns = ("cluster", "valid_from", "valid_to", "seconds", "kind", "leader_before", "leader_after")
        self._table("gaps", "controller_gaps", row, (*columns, "cause_text"))

    def _controller_elections(self, row: Row) -> None:
        self._moment(row[0], row[self._at["controller_elections"]["timestamp"]])
        self._count(row, "controller elections")

    def _leadership_changes(self, row: Row) -> None:
        at = self._at["leadership_changes"]
        when, cause = row[at["timestamp"]], row[at["cause"]]
        self._moment(row[0], when)
        self.moves.append((row[0], row[at["topic"]], when))
        self.causes[row[0], cause] += 1
        self.examples.setdefault(cause, row[at["cause_text"]])
        self._count(row, "leadership changes")
        columns = ("cluster", "timestamp", "offset", "topic", "partition", "from_leader", "to_leader", "cause_text")
        self._table("moves", "leadership_changes", row, columns)

    def _unavailability(self, row: Row) -> None:
        at = self._at["unavailability"]
        kind = row[at["kind"]]
        span = self._validity(at, row, None)
        cause, broker, why = row[at["cause"]], row[at["cause_broker"]], row[at["cause_text"]]
        why = self._texts.setdefault(why, why)
        of = (row[0], row[at["topic"]], row[at["partition"]])
        outage = Outage(*of, span.begin, span.end, cause, broker, why, row[at["cause_offset"]])
        self.outages.setdefault(kind, []).append(outage)
        self._count(row, f"{kind} partition seconds", row[at["seconds"]])

    def _fencing(self, row: Row) -> None:
        at = self._at["fencing"]
        span = self._validity(at, row, None)
        if row[at["cause"]] not in {"broker-registered", "snapshot"}:
            self.fencings.append(Fencing(row[0], row[at["broker"]], span.begin, span.end, row[at["cause"]]))
        self._count(row, "fencings")
        columns = ("cluster", "broker", "valid_from", "valid_to", "seconds", "leaders_moved", "isr_left", "cause_text")
        self._table("fencing", "fencing", row, columns)

    def _unclean_elections(self, row: Row) -> None:
        self._validity(self._at["unclean_elections"], row, None)
        self._count(row, "unclean elections")
        columns = (
            "cluster",
            "topic",
            "partition",
            "valid_from",
            "from_leader",
            "to_leader",
            "isr_before",
            "cause_text",
        )
        self._table("unclean", "unclean_elections", row, columns)

    def _reassignments(self, row: Row) -> None:
        self._validity(self._at["reassignments"], row, None)
        columns = (
            "topic",
            "partition",
            "valid_from",
            "seconds",
            "from_replicas",
            "to_replicas",
            "outcome",
            "cause_text",
        )
        self._table("reassignments", "reassignments", row, columns)

    def _acl_audit(self, row: Row) -> None:
        at = self._at["acl_audit"]
        self._validity(at, row, None)
        self._count(row, "access rules")
        wide = row[at["principal"]] in {"User:*", "Group:*"} or row[at["operation"]] == "ALL"
        if wide and row[at["permission"]] == "ALLOW" and row[at["effective"]]:
            columns = (
                *("cluster", "principal", "operation", "resource_type", "resource_name", "pattern_type", "host"),
                *("valid_from", "valid_to"),
            )
            self._table("wide rules", "acl_audit", row, columns)

    def _churn(self, row: Row) -> None:
        at = self._at["churn"]
        self.churn[row[0], row[at["kind"]], row[at["name"]]] += row[at["partition_changes"]]
        if row[at["kind"]] == "topic":
            self._count(row, "partition changes", row[at["partition_changes"]])

    def _retention(self, row: Row) -> None:
        at = self._at["retention"]
        self._moment(row[0], row[at["from_time"]])
        self._moment(row[0], row[at["to_time"]])
        if not row[at["known"]]:
            self.unknown_ranges += 1
            self._count(row, "unknown ranges")
        columns = ("cluster", "kind", "from_offset", "to_offset", "from_time", "to_time", "known", "text")
        self._table("retention", "retention", row, columns)
