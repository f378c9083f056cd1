"""The numbers of `kraft.limits` relate to each other and to the turn."""

from __future__ import annotations

import ast
import re
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from kraft import limits
from kraft.limits import RELATIONS, broken
from metadata_log.log.snapshot_writer import MAX_BATCH_BYTES
from support import ROOT

BOUND: Final = re.compile(r"PER_(STEP|TURN|UNIT|PORTION)$|AT_ONCE$|^_?MANY_|^_?MOST_SEEN")
ELSEWHERE: Final = [
    "transport/epoll.py: _EVENTS_AT_ONCE",
    "transport/epoll.py: _BURSTS_PER_TURN",
    "transport/epoll.py: _PATIENT_BURSTS_PER_TURN",
    "transport/epoll.py: _ACCEPTS_AT_ONCE",
    "transport/protocol/server_connection.py: ELEMENTS_PER_STEP",
]
"""What the loop over sockets and the codec of frames alone know."""


class Asked:
    """The limits, which remember what a relation asks of them."""

    def __init__(self, names: set[str], room: str = "") -> None:
        self._names = names
        self._room = room

    def __getattr__(self, name: str) -> Any:
        if name == "transport":
            return Asked(self._names, "transport.")
        self._names.add(self._room + name)
        return attrgetter(self._room + name)(limits)


def numbers_of(module: ModuleType) -> set[str]:
    """The numbers that a module defines."""
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    return {name for name in map(assigned_name, tree.body) if isinstance(getattr(module, name, None), int | float)}


def assigned_name(statement: ast.stmt) -> str:
    """The name that a statement of a module gives a value, with or without a type; empty for other statements."""
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case _:
            return ""


def test_each_number_is_in_a_relation() -> None:
    asked: set[str] = set()
    for holds in RELATIONS.values():
        assert holds(Asked(asked))
    of_transport = {f"transport.{name}" for name in numbers_of(limits.transport)}
    assert sorted((numbers_of(limits) | of_transport) - asked) == []


def test_no_bound_of_a_turn_stands_elsewhere() -> None:
    """Kafka's own numbers, and the costs of single things in bytes, stand where they are used."""
    found = []
    for top in (
        "kraft/coordinators",
        "kraft/partitions",
        "kraft/broker",
        "kraft/handling",
        "kraft/controller",
        "transport",
    ):
        for path in sorted((ROOT / top).rglob("*.py")):
            for one in ast.parse(path.read_text("utf-8")).body:
                name, value = assigned_name(one), getattr(one, "value", None)
                if BOUND.search(name) and isinstance(value, ast.Constant | ast.BinOp) and path.name != "limits.py":
                    found.append(f"{path.relative_to(ROOT)}: {name}")
    assert found == ELSEWHERE


def test_the_numbers_relate() -> None:
    assert broken(limits) == []


def test_the_largest_batch_is_that_of_the_files() -> None:
    """What writes and receives snapshots lies below these numbers."""
    assert limits.BATCH_BYTES == MAX_BATCH_BYTES
