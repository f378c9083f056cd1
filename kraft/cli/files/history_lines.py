"""Formats rows of the history views as lines of text: subject, change and cause."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.cli.text import count
from metadata_log.history.causes import LOST_SIGHT, SNAPSHOT
from metadata_log.history.views import VIEWS, View
from metadata_log.image.topics import NO_LEADER
from metadata_log.times import when_text

Row = tuple[Any, ...]
Facts = dict[str, Any]

STORY: Final = (
    "quorum_epochs",
    "voter_history",
    "controller_history",
    "broker_history",
    "feature_history",
    "topic_history",
    "partition_history",
    "config_history",
    "acl_history",
    "quota_history",
    "scram_history",
    "token_history",
)
"""The views of the whole history."""
MOMENTS: Final = ("controller_elections", "leadership_changes")
"""The views with the causes of elections."""
_RANKS: Final = {name: rank for rank, name in enumerate((*STORY, *MOMENTS))}
_TOPIC_AT: Final = {name: view.names.index("topic") for name, view in VIEWS.items() if "topic" in view.names}
_NAMES: Final = {name: view.names for name, view in VIEWS.items()}
_PLAIN_ENDS: Final = frozenset(
    {
        "acl-removed",
        "broker-unregistered",
        "config-removed",
        "controller-unregistered",
        "credential-removed",
        "feature-removed",
        "quota-removed",
        "token-removed",
        "voter-removed",
    }
)
"""Causes that only repeat that a resource is gone."""


def by_name(view: View, row: Row) -> Facts:
    """A row by the names of its columns."""
    return dict(zip(_NAMES[view.name], row, strict=True))


class Event(Struct, frozen=True, kw_only=True):
    """One line of a history; `rank` is the position of its view among those of the same offset."""

    offset: int
    rank: int
    timestamp: int | None
    epoch: int | None
    subject: str
    what: str
    why: str

    def line(self) -> str:
        """As text: offset, time, epoch, and one sentence."""
        epoch = "" if self.epoch is None else f"e{self.epoch}"
        why = f" — {self.why}" if self.why else ""
        time = when_text(self.timestamp)
        return f"{self.offset:>9}  {time:24}  {epoch:>5}  {self.subject}: {self.what}{why}"


class Filter(Struct, frozen=True, kw_only=True):
    """Selects rows; `topic` is a topic, or a partition like `orders-3`."""

    topic: str | None = None
    broker: int | None = None

    def views(self, names: Iterable[str]) -> tuple[str, ...]:
        """The views that may have selected rows."""
        return tuple(name for name in names if self._may_hold(VIEWS[name].names))

    def _may_hold(self, columns: tuple[str, ...]) -> bool:
        if self.topic is not None and not {"topic", "resource_name"} & set(columns):
            return False
        return self.broker is None or bool({"topic", "broker", "resource_name"} & set(columns))

    def may_take(self, view: View, row: Row) -> bool:
        """A quick check: False if the row is of another topic."""
        index = _TOPIC_AT.get(view.name)
        return self.topic is None or index is None or self.topic.startswith(row[index])

    def takes(self, row: Facts, before: Facts | None) -> bool:
        """Whether a row is selected; `before` is the preceding row of the same resource."""
        if self.topic is not None and not self._of_topic(row):
            return False
        return self.broker is None or self._of_broker(row, before)

    def _of_topic(self, row: Facts) -> bool:
        if "resource_name" in row:
            return (row["resource_type"], row["resource_name"]) == ("TOPIC", self.topic)
        return self.topic == row["topic"] or ("partition" in row and self.topic == partition_name(row))

    def _of_broker(self, row: Facts, before: Facts | None) -> bool:
        broker = self.broker
        if "resource_name" in row:
            return (row["resource_type"], row["resource_name"]) == ("BROKER", str(broker))
        if broker in (row.get("broker"), row.get("cause_broker"), row.get("from_leader"), row.get("to_leader")):
            return True
        then = before or {}
        if row.get("leader") != then.get("leader") and broker in (row.get("leader"), then.get("leader")):
            return True
        return any(broker in set(row.get(name, ())) ^ set(then.get(name, ())) for name in ("isr", "replicas"))


def partition_name(row: Facts) -> str:
    """The name of a partition, as in Kafka's tools."""
    return f"{row['topic']}-{row['partition']}"


def partition_what(row: Facts, before: Facts | None) -> str:
    """The change of a partition."""
    if before is None:
        return f"leader {_leader(row)}, replicas {_ids(row['replicas'])}, ISR {_ids(row['isr'])}"
    parts = []
    if row["leader"] != before["leader"]:
        parts.append(f"leader {_leader(before)} → {_leader(row)}")
    elif row["leader_epoch"] != before["leader_epoch"]:
        parts.append(f"leader {_leader(row)} again, in leader epoch {row['leader_epoch']}")
    for name, words in _SETS:
        if row[name] != before[name]:
            parts.append(f"{words} {_ids(before[name])} → {_ids(row[name])}")
    if row["leader_recovery_state"] != before["leader_recovery_state"]:
        parts.append(f"leader {row['leader_recovery_state'].lower()}")
    if row["directories"] != before["directories"] and row["replicas"] == before["replicas"]:
        parts.append("directories assigned")
    return ", ".join(parts) or "unchanged"


_SETS: Final = (
    ("isr", "ISR"),
    ("elr", "ELR"),
    ("last_known_elr", "last known ELR"),
    ("replicas", "replicas"),
    ("adding_replicas", "adding"),
    ("removing_replicas", "removing"),
)


def _leader(row: Facts) -> str:
    return "none" if row["leader"] == NO_LEADER else str(row["leader"])


def _ids(ids: Iterable[object]) -> str:
    return f"[{','.join(map(str, ids))}]"


def _broker_what(row: Facts, before: Facts | None) -> str:
    if before is None or row["broker_epoch"] != before["broker_epoch"]:
        state = "fenced" if row["fenced"] else "unfenced"
        return f"registered, {state}, broker epoch {row['broker_epoch']}"
    parts = []
    if row["fenced"] != before["fenced"]:
        parts.append("fenced" if row["fenced"] else "unfenced")
    if row["in_controlled_shutdown"] != before["in_controlled_shutdown"]:
        parts.append("shutting down" if row["in_controlled_shutdown"] else "no longer shutting down")
    if row["log_dirs"] != before["log_dirs"]:
        parts.append(f"log directories {_ids(before['log_dirs'])} → {_ids(row['log_dirs'])}")
    if row["cordoned_log_dirs"] != before["cordoned_log_dirs"]:
        parts.append(f"cordoned log directories {_ids(row['cordoned_log_dirs'] or ())}")
    return ", ".join(parts) or "registered again"


def _topic_what(row: Facts, before: Facts | None) -> str:
    if before is not None and row["partitions"] != before["partitions"]:
        return f"{before['partitions']} → {row['partitions']} partitions"
    return f"{count(row['partitions'], 'partition')} with {count(row['replication_factor'], 'replica')}"


def _config_what(row: Facts, before: Facts | None) -> str:
    was = row["previous_value"]
    return f"{row['key']} = {row['value']}" + ("" if was is None else f" (was {was})")


def _acl_what(row: Facts, before: Facts | None) -> str:
    return (
        f"{row['permission']} {row['operation']} on {row['resource_type']} {row['resource_name']} "
        f"({row['pattern_type']}) from host {row['host']}"
    )


def _feature_what(row: Facts, before: Facts | None) -> str:
    was = row["previous_level"]
    release = f" ({row['release']})" if row["release"] else ""
    return f"level {row['level']}{release}" if was is None else f"level {was} → {row['level']}{release}"


def _epoch_what(row: Facts, before: Facts | None) -> str:
    return f"active in epoch {row['quorum_epoch']}"


def _move_what(row: Facts, before: Facts | None) -> str:
    was, now = ("none" if row[name] == NO_LEADER else row[name] for name in ("from_leader", "to_leader"))
    marks = ("" if row["clean"] else ", UNCLEAN") + (", preferred" if row["preferred"] else "")
    return f"leader {was} → {now} in leader epoch {row['leader_epoch']}{marks}"


class _Telling(Struct, frozen=True):
    subject: Callable[[Facts], str]
    what: Callable[[Facts, Facts | None], str]
    ended: Callable[[Facts], str] | None = None
    says_all: bool = False
    """Whether the cause only repeats the change."""


def _resource(row: Facts) -> str:
    return f"{row['resource_type'].lower()} {row['resource_name'] or '<default>'}"


_TELLINGS: Final[dict[str, _Telling]] = {
    "quorum_epochs": _Telling(lambda row: f"controller {row['leader_id']}", _epoch_what),
    "controller_elections": _Telling(lambda row: f"controller {row['leader_id']}", _epoch_what),
    "voter_history": _Telling(
        lambda row: f"voter {row['voter']}", lambda row, _: f"{' '.join(row['endpoints'])}", lambda _: "removed"
    ),
    "controller_history": _Telling(
        lambda row: f"controller {row['controller']}",
        lambda row, _: f"registered, {' '.join(row['endpoints'])}",
        lambda _: "unregistered",
        says_all=True,
    ),
    "broker_history": _Telling(lambda row: f"broker {row['broker']}", _broker_what, lambda _: "unregistered"),
    "feature_history": _Telling(
        lambda row: f"feature {row['feature']}", _feature_what, lambda _: "no longer finalized", says_all=True
    ),
    "topic_history": _Telling(lambda row: f"topic {row['topic']}", _topic_what, lambda _: "deleted"),
    "partition_history": _Telling(partition_name, partition_what),
    "leadership_changes": _Telling(partition_name, _move_what),
    "config_history": _Telling(_resource, _config_what, lambda row: f"{row['key']} removed", says_all=True),
    "acl_history": _Telling(
        lambda row: row["principal"], _acl_what, lambda row: f"removed: {_acl_what(row, None)}", says_all=True
    ),
    "quota_history": _Telling(
        lambda row: f"quota of {row['entity']}",
        lambda row, _: f"{row['key']} = {repr(row['value']).removesuffix('.0')}",
        lambda row: f"{row['key']} removed",
        says_all=True,
    ),
    "scram_history": _Telling(
        lambda row: f"user {row['user']}",
        lambda row, _: f"{row['mechanism']} credential, {row['iterations']} iterations",
        lambda row: f"{row['mechanism']} credential removed",
        says_all=True,
    ),
    "token_history": _Telling(
        lambda row: f"token {row['token_id']}",
        lambda row, _: f"owner {row['owner']}, expires {when_text(row['expires'])}",
        lambda _: "removed",
    ),
}


class HistoryLines:
    """Collects the rows of history views, in the order of their ends, and lists the changes in the order of offsets.

    The rows of one resource arrive in order, so each row can be compared with the preceding one on arrival. The end of
    a resource is certain once no row follows.
    """

    def __init__(self, wanted: Filter) -> None:
        self._wanted = wanted
        self._events: list[Event] = []
        self._latest: dict[tuple[object, ...], Facts] = {}
        self._epochs: list[tuple[int, int]] = []

    def note_epoch(self, row: Row) -> None:
        """Note when an epoch began: a row of `quorum_epochs`, which need not be selected."""
        facts = by_name(VIEWS["quorum_epochs"], row)
        self._epochs.append((facts["valid_from_offset"], facts["epoch"]))

    def take(self, view: View, row: Row) -> Facts | None:
        """Note a row; returns the row by the names of its columns if it is selected."""
        if not self._wanted.may_take(view, row):
            return None
        facts = by_name(view, row)
        telling = _TELLINGS[view.name]
        before = self._former(view, facts)
        if not self._wanted.takes(facts, before):
            return None
        if facts["cause"] != SNAPSHOT:
            is_moment = "offset" in facts
            self._events.append(
                Event(
                    offset=facts["offset" if is_moment else "valid_from_offset"],
                    rank=_RANKS[view.name],
                    timestamp=facts["timestamp" if is_moment else "valid_from"],
                    epoch=facts["epoch"],
                    subject=telling.subject(facts),
                    what=telling.what(facts, before),
                    why="" if telling.says_all else facts["cause_text"],
                )
            )
        return facts

    def _former(self, view: View, facts: Facts) -> Facts | None:
        """The preceding row of the same resource, if it ended where this one begins; the latest row is kept."""
        if not view.key:
            return None
        key = (view.name, *(facts[name] for name in view.key))
        former = self._latest.get(key)
        self._latest[key] = facts
        if former is None or former["valid_to_offset"] == facts["valid_from_offset"]:
            return former
        self._ended(view.name, former)
        return None

    def _ended(self, view: str, facts: Facts) -> None:
        ended = _TELLINGS[view].ended
        if ended is None or facts["end_cause"] in (None, LOST_SIGHT) or not self._wanted.takes(facts, facts):
            return
        self._events.append(
            Event(
                offset=facts["valid_to_offset"],
                rank=_RANKS[view],
                timestamp=facts["valid_to"],
                epoch=None,
                subject=_TELLINGS[view].subject(facts),
                what=ended(facts),
                why="" if facts["end_cause"] in _PLAIN_ENDS else facts["end_cause"],
            )
        )

    def events(self) -> Iterator[Event]:
        """The changes, in the order of offsets; call this once, after the last row."""
        for (view, *_), facts in self._latest.items():
            self._ended(str(view), facts)
        self._latest.clear()
        self._epochs.sort()
        for event in sorted(self._events, key=lambda event: (event.offset, event.rank, event.subject, event.what)):
            yield event if event.epoch is not None else replace(event, epoch=self._epoch_at(event.offset))

    def _epoch_at(self, offset: int) -> int | None:
        index = bisect_right(self._epochs, (offset, 2**31)) - 1
        return self._epochs[index][1] if index >= 0 else None
