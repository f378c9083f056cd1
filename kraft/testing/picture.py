"""The events in the cluster of a test, drawn as the simulator draws a schedule: a lane for each node.

Three sources know it: the lines of the nodes' logs (elections, starts and ends), the calls of the test (faults), and
the metadata log (brokers that were fenced, leaders that moved, and why).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from msgspec import Struct

from kraft.sim.pictures.diagram import Drawing
from kraft.sim.pictures.execution import Moment, NodeState
from kraft.sim.pictures.wording import change_text
from kraft.sim.world.actions import WORLD
from kraft.testing.log_lines import Call, Line
from metadata_log.disk import Disk
from metadata_log.history.engine import Options, rows
from metadata_log.history.views import VIEWS
from metadata_log.reading.damage import OnDamage
from metadata_log.reading.timeline import read_timeline
from metadata_log.types import NO_NODE

_FAULTS: Final = frozenset(
    {
        *("kill", "stop", "pause", "partition", "delay", "throttle", "break_connection"),
        *("slow_disk", "full_disk", "fail_next"),
    }
)
"""The calls that break something; the others mend it, or move something."""
_QUIET: Final = frozenset({"snapshot", "broker-registered-again", "directories-cordoned"})
"""Causes of rows about brokers that change nothing a reader looks for."""
_MOST: Final = 400
"""The most moments of a picture, the last ones; each has about a kilobyte."""
_MOST_NAMES: Final = 3


class Change(Struct, frozen=True):
    """Something that the controllers decided about a broker, at seconds since 1970."""

    at: float
    node_id: int
    what: str
    why: str = ""
    fenced: bool | None = None
    """Whether the broker counts as dead from now on; None if nothing changes."""


def changes_in(disk: Disk, directory: str) -> Iterator[Change]:
    """Read the changes of brokers and leaders from the metadata log. Times are those of the nodes' clock."""
    moves: list[tuple[int, int, str, str]] = []
    timeline = read_timeline(disk, directory, on_damage=OnDamage.SKIP)
    views = ("broker_history", "leadership_changes")
    for view, row in rows(timeline, views, cluster="", options=Options(on_damage=OnDamage.SKIP)):
        facts = dict(zip(VIEWS[view].names, row, strict=True))
        if view == "leadership_changes":
            name = f"{facts['topic']}-{facts['partition']}"
            moves.append((facts["timestamp"], facts["to_leader"], name, facts["cause_text"]))
        elif facts["cause"] not in _QUIET:
            broker_id = facts["broker"]
            what = facts["cause_text"].removeprefix(f"broker {broker_id} ")
            yield Change(facts["valid_from"] / 1000, broker_id, what, fenced=facts["fenced"])
    for (at_ms, leader), together in groupby(sorted(moves), lambda move: move[:2]):
        *_, names, reasons = zip(*together, strict=True)
        if leader == NO_NODE:
            yield Change(at_ms / 1000, WORLD, f"nobody leads {_listed(names)}", reasons[0])
        else:
            yield Change(at_ms / 1000, leader, f"leads {_listed(names)}", reasons[0])


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


class _Lane:
    """A node as far as it is known."""

    def __init__(self) -> None:
        self.is_up = False
        self.is_paused = False
        self.is_fenced = False
        self.state = ""
        self.epoch = 0
        self.leader = NO_NODE

    def shown(self) -> NodeState:
        state = self.state
        if not self.is_up:
            state = "down"
        elif self.is_paused:
            state = "Paused"
        elif self.is_fenced:
            state = "Fenced"
        return NodeState(state, self.epoch, self.leader, -1, -1, -1, None, ())


class _Told(Struct, frozen=True):
    """The description of a moment."""

    node_id: int
    what: str
    why: tuple[str, ...] = ()
    is_fault: bool = False


def drawing_of(
    happened: Iterable[Line | Call | Change],
    *,
    node_ids: Iterable[int],
    since: float,
    until: float,
    title: str,
    verdict: str,
) -> Drawing:
    """Make the picture of the time between two moments, in seconds since 1970.

    Args:
        happened: What is known of the cluster, in any order.
        node_ids: All nodes; each has a lane.
        since: Where the picture begins; what happened before decides the states at its beginning.
        until: Where it ends.
        title: The title of the page.
        verdict: A sentence below it.
    """
    lanes = {node_id: _Lane() for node_id in node_ids}
    in_order = sorted(happened, key=lambda one: one.at)
    for one in in_order:
        if one.at < since:
            _apply(one, lanes)
    moments = [
        _moment(0.0, _Told(WORLD, "the test begins"), lanes),
        *(
            _moment(one.at - since, told, lanes)
            for one in in_order
            if since <= one.at <= until and (told := _apply(one, lanes)) is not None
        ),
        _moment(until - since, _Told(WORLD, "the test ends"), lanes),
    ]
    return Drawing(title=title, verdict=verdict, moments=tuple(moments[-_MOST:]))


def _moment(seconds: float, told: _Told, lanes: dict[int, _Lane]) -> Moment:
    nodes = {node_id: lane.shown() for node_id, lane in lanes.items()}
    return Moment(round(seconds * 1000), told.node_id, told.what, told.why, told.is_fault, nodes)


def _apply(one: Line | Call | Change, lanes: dict[int, _Lane]) -> _Told | None:
    """Note what happened in the lanes; returns None for what a picture does not tell."""
    match one:
        case Call():
            return _called(one, lanes)
        case Line():
            return _logged(one, lanes)
        case Change(node_id=node_id, fenced=fenced):
            if fenced is not None and node_id in lanes:
                lanes[node_id].is_fenced = fenced
            return _Told(node_id, one.what, (one.why,) if one.why else ())


def _called(call: Call, lanes: dict[int, _Lane]) -> _Told:
    named = call.arguments.get("node_id")
    node_id = named if named in lanes else WORLD
    lane = lanes.get(node_id, _Lane())
    match call.name:
        case "kill" | "restart":
            lane.is_up = lane.is_paused = False
        case "pause":
            lane.is_paused = True
        case "resume":
            lane.is_paused = False
        case "heal" | "reset":
            for each in lanes.values():
                each.is_paused = False
                each.is_up = each.is_up and call.name == "heal"
        case _:
            pass
    return _Told(node_id, call.message, is_fault=call.name in _FAULTS)


def _logged(line: Line, lanes: dict[int, _Lane]) -> _Told | None:
    facts = line.facts
    node_id = facts.get("node")
    if node_id not in lanes:
        return _Told(WORLD, line.message) if line.level >= logging.WARNING else None
    lane = lanes[node_id]
    match facts.get("event"):
        case "state":
            lane.is_up, lane.state, lane.epoch = True, str(facts["to"]), facts["epoch"]
            return _Told(node_id, f"{change_text('{from}->{to} {cause}'.format_map(facts))}, epoch {lane.epoch}")
        case "leader":
            lane.leader = facts["leader"] if isinstance(facts["leader"], int) else NO_NODE
            return None
        case "serving":
            return _Told(node_id, "serves")
        case "stopped":
            lane.is_up = False
            return _Told(node_id, "has stopped")
        case "ended":
            lane.is_up = False
            return _Told(node_id, line.message, is_fault=True)
        case _:
            return _Told(node_id, line.message) if line.level >= logging.WARNING else None


def on_the_wall(at: float, jumps: Sequence[tuple[float, float]], ahead: float) -> float:
    """The real time at which the nodes' clock, which a test let jump, showed a time.

    Args:
        at: The time of the nodes' clock.
        jumps: The jumps that are known, in order: when each was, and by how many seconds.
        ahead: How far the clock is ahead after the last one.
    """
    for when, seconds in reversed(jumps):
        if at - ahead >= when:
            break
        ahead -= seconds
    return at - ahead
