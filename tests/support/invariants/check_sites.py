"""The places at which a check fails, found in the source, and the places that a run of a case reaches.

A site is a `raise InvariantViolated`, a `_raise_if(…)`, or in a ledger the `return` of a description of a violation.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any

from msgspec import Struct

import kraft
from kraft.invariants.violation import InvariantViolated

ROOT = Path(kraft.__file__).parent
CHECKED = ("invariants", "sim", "testing")
"""The packages and modules with checks."""
LEDGERS = ROOT / "invariants"
DESCRIPTIONS = ("str | None", "str")
"""The types of the functions that return a description of a violation, or nothing."""
TELLERS = ("_told", "_keys", "_difference", "_setting", "setting", "__repr__", "__str__")
"""Functions that return a text that describes no violation."""
_DIFFERENCES = "tests/kraft/invariants/test_cluster_model.py::test_a_difference_of_each_family_is_named"
_CLIENTS = "tests/kraft/sim/test_sim_clients.py"
_FAMILIES = {"difference": 5, "partition_difference": 2, "_other_difference": 3}
"""The number of differences that each function of the model names."""
REACHED_BY_RUNS: dict[str, str] = {
    "kraft.invariants.partitions._raise_if#0": "last-known-leaders-stay",
    "kraft.invariants.voters.VoterLedger.not_made#0": "voter-change-answered-at-once",
    "kraft.testing.records.RecordCheck.check#0": (
        "tests/kraft/test_testing_brokers.py::test_a_lost_acknowledged_record_is_found"
    ),
    "kraft.sim.nodes.broker_contacts.BrokerContacts._check_expiry#0": "an-old-session-fences-the-new-incarnation",
    "kraft.sim.nodes.broker_contacts.BrokerContacts._check_unfencing#0": "unfenced-before-its-own-registration",
    "kraft.sim.workloads.client_history.ClientHistory._check_sessions#0": "session-dies-in-use",
    "kraft.sim.workloads.voter_watch.VoterWatch._answered#0": "voter-change-answered-at-once",
    "kraft.sim.world.read_watch.ReadWatch.answered#0": f"{_CLIENTS}::test_a_read_has_one_answer",
    "kraft.sim.world.read_watch.ReadWatch.answered#1": (
        f"{_CLIENTS}::test_a_deposed_leader_that_answers_a_read_is_a_violation"
    ),
    "kraft.sim.world.read_watch.ReadWatch.answered#2": (
        f"{_CLIENTS}::test_a_read_sees_what_was_committed_before_it_began"
    ),
    **{
        f"kraft.invariants.cluster_model.ClusterModel.{function}#{number}": _DIFFERENCES
        for function, count in _FAMILIES.items()
        for number in range(count)
    },
}
"""The sites that no case reaches, each with the mutant or the test that reaches the site."""


class Case(Struct, frozen=True):
    """A story that ends with a violation, and the message of the violation."""

    name: str
    message: str
    play: Callable[[], None]


class Cases:
    """The cases of one module; the instance is the decorator of a case."""

    def __init__(self) -> None:
        self.all: list[Case] = []

    def __call__(self, message: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
        def add(play: Callable[[], None]) -> Callable[[], None]:
            assert play.__name__ not in [one.name for one in self.all], play.__name__
            self.all.append(Case(play.__name__, message, play))
            return play

        return add


class Site(Struct, frozen=True, order=True):
    """One place at which a check fails. `name` holds no line number: module, function, and number in the function."""

    path: str
    first: int
    last: int
    name: str

    def holds(self, path: str, line: int) -> bool:
        """Whether a line belongs to this site."""
        return self.path == path and self.first <= line <= self.last


def all_sites() -> list[Site]:
    """Every site in the source of the packages with checks."""
    paths = chain.from_iterable(sorted((ROOT / name).rglob("*.py")) or [ROOT / name] for name in CHECKED)
    return sorted(site for path in paths for site in _sites_of(path))


def _sites_of(path: Path) -> Iterator[Site]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
    for scope, function in _functions(tree, module):
        returned = ast.unparse(function.returns or ast.Constant(None))
        describes = LEDGERS in path.parents and returned in DESCRIPTIONS and function.name not in TELLERS
        found = [one for one in ast.walk(function) if _is_site(one, describes=describes)]
        for count, one in enumerate(sorted(found, key=_line)):
            assert isinstance(one, ast.stmt)
            yield Site(str(path), one.lineno, one.end_lineno or one.lineno, f"{scope}.{function.name}#{count}")


def _functions(tree: ast.AST, scope: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield scope, child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{scope}.{child.name}")


def _is_site(node: ast.AST, *, describes: bool) -> bool:
    match node:
        case ast.Raise(exc=ast.Call(func=ast.Name(id=InvariantViolated.__name__))):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="_raise_if"))):
            return True
        case ast.Return(value=ast.Constant(value=None | "")) | ast.Return(value=None):
            return False
        case ast.Return():
            return describes
        case _:
            return False


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def played(case: Case) -> tuple[InvariantViolated | None, set[tuple[str, int]]]:
    """Play a case: the violation, and the lines of its traceback and of the descriptions that functions returned."""
    told: set[tuple[str, int]] = set()

    def note(frame: FrameType, event: str, given: Any) -> None:
        if event == "return" and isinstance(given, str) and given:
            told.add((frame.f_code.co_filename, frame.f_lineno))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        case.play()
    except InvariantViolated as violation:
        sys.setprofile(before)
        traceback = violation.__traceback__
        lines = set()
        while traceback is not None:
            lines.add((traceback.tb_frame.f_code.co_filename, traceback.tb_lineno))
            traceback = traceback.tb_next
        return violation, lines | told
    finally:
        sys.setprofile(before)
    return None, told
