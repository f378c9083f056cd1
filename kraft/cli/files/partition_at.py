"""`kraft replay --topic`: the leader and the replicas of partitions at a moment, and the records that made it so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from kraft.cli.files.history_lines import Facts, Filter, by_name, partition_name
from kraft.cli.files.history_reading import HistoryReading
from kraft.cli.files.image_at import ImageAt
from kraft.cli.files.unavailable import FENCING, Lost, lost_at
from kraft.cli.near import unknown_topic
from kraft.cli.text import table
from kraft.config.errors import CommandFailed
from metadata_log.history.engine import Options
from metadata_log.image import MetadataImage
from metadata_log.image.topics import NO_LEADER
from metadata_log.reading.damage import OnDamage
from metadata_log.reading.timeline import At
from metadata_log.times import iso_time, when_text

_PARTITIONS: Final = "partition_history"
_LEADERS: Final = "leader_history"
_ISR: Final = "isr_history"
_SETS: Final = (
    ("replicas", "replicas"),
    ("isr", "in sync (ISR)"),
    ("elr", "eligible (ELR)"),
    ("last_known_elr", "last known ELR"),
    ("adding_replicas", "adding"),
    ("removing_replicas", "removing"),
)
_STATE: Final = (
    "topic",
    "topic_id",
    "partition",
    "leader",
    "leader_epoch",
    "partition_epoch",
    *(name for name, _ in _SETS),
    "leader_recovery_state",
    "directories",
)
"""The columns of the state in the JSON output."""


class PartitionAt(Struct, frozen=True, kw_only=True):
    """A partition at a moment: the rows of the histories that hold then, and the fence that the leader's row names."""

    state: Facts
    leader: Facts
    isr: Facts
    fence: Lost | None
    isr_fence: Lost | None

    def lines(self) -> Iterator[str]:
        """As text: the state, why the leader leads, and why these replicas are in sync."""
        state = self.state
        yield f"{partition_name(state)}: {_leads(state)}in leader epoch {state['leader_epoch']}"
        facts = {
            **{words: ",".join(map(str, state[name])) or "-" for name, words in _SETS},
            "leader recovery": state["leader_recovery_state"].lower(),
            "partition epoch": state["partition_epoch"],
            "topic id": state["topic_id"],
        }
        width = max(map(len, facts)) + 2
        yield from (f"  {name + ':':<{width}} {value}" for name, value in facts.items())
        former = self.leader["previous_leader"]
        before = "" if former in (None, NO_LEADER, state["leader"]) else f", after {former}"
        yield f"why {'no replica' if state['leader'] == NO_LEADER else state['leader']} leads{before}"
        yield from _why(self.leader, self.fence)
        yield "why these replicas are in sync"
        yield from _why(self.isr, self.isr_fence)

    def facts(self) -> Facts:
        """As JSON fields."""
        return {
            **{name: self.state[name] for name in _STATE},
            "previous_leader": self.leader["previous_leader"],
            "election": self.leader["election"],
            "leader_since": _why_facts(self.leader, self.fence),
            "isr_since": _why_facts(self.isr, self.isr_fence),
        }

    def cells(self) -> tuple[object, ...]:
        """One line of a table."""
        state, leader = self.state, self.leader
        sets = (",".join(map(str, state[name])) or "-" for name in ("replicas", "isr", "elr"))
        number = "none" if state["leader"] == NO_LEADER else state["leader"]
        since = leader["valid_from_offset"], iso_time(leader["valid_from"])
        return (partition_name(state), number, state["leader_epoch"], *sets, *since, leader["cause_text"])


def partitions_at(found: ImageAt, topic: str, at: At | None, on_damage: OnDamage) -> list[PartitionAt]:
    """The partitions of a topic, or the named one, at the moment of an image.

    Args:
        found: The image at that moment, from the same path.
        topic: A topic, or a partition such as orders-3.
        at: The moment; None for the end of the log.
        on_damage: The reaction to damage.

    Raises:
        CommandFailed: There is no such topic or partition at that moment.
    """
    name, number = _named(topic, found.image)
    reading = HistoryReading(found.path, at, Options(on_damage=on_damage), Filter(topic=topic))
    topic_id = str(found.image.topics[name].id)
    rows: dict[str, dict[int, Facts]] = {_PARTITIONS: {}, _LEADERS: {}, _ISR: {}}
    fenced: dict[int, list[tuple[int, int, Facts]]] = {}
    for view, row in reading.rows((*rows, FENCING)):
        facts = by_name(view, row)
        if view.name == FENCING:
            fenced.setdefault(facts["broker"], []).append((facts["valid_from"], facts["valid_from_offset"], facts))
        elif facts["topic_id"] == topic_id and facts["valid_to_offset"] is None:
            rows[view.name][facts["partition"]] = facts

    def fence_of(row: Facts) -> Lost | None:
        lost = lost_at(sorted(fenced.get(row["cause_broker"], ())), row["valid_from"])
        # Only a loss in the same batch is the cause; the broker of another cause may have been fenced long before.
        return lost if lost is not None and lost.since_ms == row["valid_from"] else None

    return [
        PartitionAt(
            state=state,
            leader=rows[_LEADERS][one],
            isr=rows[_ISR][one],
            fence=fence_of(rows[_LEADERS][one]),
            isr_fence=fence_of(rows[_ISR][one]),
        )
        for one, state in sorted(rows[_PARTITIONS].items())
        if number in (None, one)
    ]


def table_lines(some: list[PartitionAt]) -> list[str]:
    """Several partitions, one a line."""
    names = ("partition", "leader", "epoch", "replicas", "isr", "elr", "since offset", "since", "why")
    return table(names, (one.cells() for one in some))


def _named(topic: str, image: MetadataImage) -> tuple[str, int | None]:
    """The name of the topic, and the number of a partition; raises `CommandFailed`."""
    if topic in image.topics:
        return topic, None
    name, dash, number = topic.rpartition("-")
    if not (dash and number.isdecimal() and name in image.topics):
        asked = name if dash and number.isdecimal() else topic
        raise unknown_topic(asked, image.topics, hint="`kraft history` shows topics of other times.")
    partitions = len(image.topics[name].partitions)
    if int(number) >= partitions:
        raise CommandFailed(
            f"there is no partition {topic} at that moment", hint=f"{name} has partitions 0 to {partitions - 1}."
        )
    return name, int(number)


def _leads(row: Facts) -> str:
    return "no leader, " if row["leader"] == NO_LEADER else f"{row['leader']} leads "


def _why(row: Facts, fence: Lost | None) -> Iterator[str]:
    yield f"  since offset {row['valid_from_offset']}, {when_text(row['valid_from'])}, controller epoch {row['epoch']}"
    if row["cause_record"] is not None:
        yield f"  by the {row['cause_record']} at offset {row['cause_offset']}"
    yield f"  because {row['cause_text']}"
    if fence is not None:
        since = iso_time(fence.since_ms)
        yield f"  broker {fence.broker}: {fence.cause} at offset {fence.offset}, {since}"


def _why_facts(row: Facts, fence: Lost | None) -> Facts:
    return {
        "offset": row["valid_from_offset"],
        "time": iso_time(row["valid_from"]),
        "epoch": row["epoch"],
        **{name: row[name] for name in ("cause", "cause_record", "cause_offset", "cause_broker", "cause_text")},
        "fence": None if fence is None else fence.facts(),
    }
