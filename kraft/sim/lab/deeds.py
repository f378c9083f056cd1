"""The deeds of a visitor on a simulated quorum, at a virtual time: the faults, the requests, and the records.

A deed happens after all events up to its time, so that a run with the same deeds is the same run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from kraft.sim.lab.kinds import CHANGES_VOTERS, TAKES_COMMANDS
from kraft.sim.runs.simulator import Simulator
from kraft.sim.workloads.voter_workload import addition_of, removal_of
from kraft.sim.world.actions import WORLD, Note, Submit
from metadata_log.errors import MetadataLogError

STAYS_DOWN_MS: Final = 10**9
"""A node that the visitor crashes stays down until the visitor starts it."""
LONGEST_MS: Final = 3_600_000
"""The longest pause of a node, fsync, and run."""
LONGEST_TEXT: Final = 200
"""The most characters of a record."""
FIRST_WRITE: Final = 1_000_000_000
"""The id of the visitor's first record; the workload has lower ids."""
FIRST_REQUEST: Final = 2_000_000_000


class BadDeed(MetadataLogError):
    """A deed is unknown, or names a node that does not exist."""


class Deed(Struct, frozen=True):
    """A deed by its name in `DEEDS`, its time, and what it is done to."""

    at_ms: int
    name: str
    nodes: tuple[int, ...] = ()
    ms: int = 0
    text: str = ""


class Doing(Struct, frozen=True):
    """A deed that is about to be done; `number` is its place among the visitor's deeds."""

    simulator: Simulator
    deed: Deed
    number: int

    @property
    def node(self) -> int:
        """The node of the deed."""
        return self.deed.nodes[0]


def do(simulator: Simulator, deed: Deed, number: int) -> None:
    """Do what the visitor wants, now. The run has a note of it.

    Raises:
        BadDeed: There is no such deed or no such node.
    """
    check(deed, simulator.node_ids, simulator.scenario.members)
    note = Note(simulator.now_ms, WORLD, f"visitor: {told(deed)}")
    if deed.name in _SETTINGS:
        DEEDS[deed.name].do(Doing(simulator, deed, number))
        simulator.note(note)
    else:
        simulator.note(note)
        DEEDS[deed.name].do(Doing(simulator, deed, number))


def check(deed: Deed, node_ids: tuple[int, ...], members: str) -> None:
    """Check a deed, which may come from a link of somebody else.

    Raises:
        BadDeed: There is no such deed or no such node, or nodes of this kind are not made for it.
    """
    kind = DEEDS.get(deed.name)
    if kind is None:
        raise BadDeed(f"there is no deed {deed.name!r}; there are {', '.join(DEEDS)}")
    if len(deed.nodes) != kind.nodes:
        raise BadDeed(f"{deed.name} needs {kind.nodes} nodes, not {len(deed.nodes)}")
    if deed.name in _OF_VOTERS and members not in CHANGES_VOTERS:
        raise BadDeed(f"the voters of {members} nodes do not change")
    if deed.name == "write" and members in TAKES_COMMANDS:
        raise BadDeed(f"{members} nodes take commands of their own, and no records")
    missing = [one for one in deed.nodes if one not in node_ids]
    if missing:
        raise BadDeed(f"there is no node {missing[0]}")
    if not (0 <= deed.at_ms <= LONGEST_MS and 0 <= deed.ms <= LONGEST_MS and len(deed.text) <= LONGEST_TEXT):
        raise BadDeed(f"a number or a text of {deed.name} is too large")


def told(deed: Deed) -> str:
    """A deed in words."""
    nodes = " | ".join(map(str, deed.nodes))
    ms = f"{deed.ms} ms" if deed.ms else ""
    return " ".join(filter(None, (deed.name, nodes, ms, deed.text)))


def _crash(doing: Doing) -> None:
    doing.simulator.crash(doing.node, STAYS_DOWN_MS)


def _restart(doing: Doing) -> None:
    doing.simulator.restart(doing.node)


def _cut(doing: Doing) -> None:
    one, other = doing.deed.nodes
    doing.simulator.faults.partition([one], [other])


def _isolate(doing: Doing) -> None:
    doing.simulator.faults.isolate(doing.node)


def _heal(doing: Doing) -> None:
    doing.simulator.faults.heal()


def _pause(doing: Doing) -> None:
    doing.simulator.pause(doing.node, doing.deed.ms)


def _slow_disk(doing: Doing) -> None:
    doing.simulator.slow_disk(doing.node, doing.deed.ms)


def _resign(doing: Doing) -> None:
    doing.simulator.resign(doing.node)


def _write(doing: Doing) -> None:
    simulator, deed = doing.simulator, doing.deed
    submit = Submit(simulator.now_ms, doing.node, FIRST_WRITE + doing.number, deed.text or f"written-{doing.number}")
    simulator.queue.perform_when_awake(submit)


def _add_voter(doing: Doing) -> None:
    _ask(doing, is_addition=True)


def _remove_voter(doing: Doing) -> None:
    _ask(doing, is_addition=False)


def _ask(doing: Doing, *, is_addition: bool) -> None:
    """Ask the leader for a change of the voters; nobody is asked while there is no leader."""
    simulator, world = doing.simulator, doing.simulator.world
    member = world.hosts[doing.node].member
    request = addition_of(member) if is_addition else removal_of(member.key)
    for leader_id in simulator.leaders()[-1:]:
        simulator.administer(leader_id, FIRST_REQUEST + doing.number, request)


class Kind(Struct, frozen=True):
    """A kind of deeds: how many nodes it names, and how it is done."""

    nodes: int
    do: Callable[[Doing], None]


DEEDS: Final = {
    "crash": Kind(1, _crash),
    "restart": Kind(1, _restart),
    "cut": Kind(2, _cut),
    "isolate": Kind(1, _isolate),
    "heal": Kind(0, _heal),
    "pause": Kind(1, _pause),
    "slow-disk": Kind(1, _slow_disk),
    "resign": Kind(1, _resign),
    "write": Kind(1, _write),
    "add-voter": Kind(1, _add_voter),
    "remove-voter": Kind(1, _remove_voter),
}
"""All kinds of deeds, by name."""
_OF_VOTERS: Final = ("add-voter", "remove-voter")
_SETTINGS: Final = ("cut", "isolate", "heal", "pause", "slow-disk")
"""Deeds without an action of their own: the moment of the note shows them."""
