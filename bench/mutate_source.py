"""Generates source-level mutants of the consensus core, of the replica and of the log, and reports what kills them.

    python bench/mutate_source.py --sample 80 --seed 1 --report docs/reference/source-mutants.md
    python bench/mutate_source.py --only 'KEY' [--only 'KEY' …]
    python bench/mutate_source.py --list | --check

A mutant is one change of one function: another comparison, a negated condition, `and` for `or`, another constant or
operator, a removed statement, a dropped result. For each mutant the tool forks, gives the function the code of the
changed source, runs the tests nearest to its module up to the first failure, and then a short simulation. No file
changes. Annotations, texts, assertions, decorators and default values are not changed.

The report says how many of all mutants a run has tried. `bench/equivalent_mutants.toml` has the reviewed mutants that
no test can tell from the sound code, each with the reason; `--check` verifies that each of them still exists.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import random
import select
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from functools import cached_property
from io import StringIO
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Final

import msgspec
import pytest
from msgspec import Struct

from kraft.sim.search.schedule import Schedule
from kraft.sim.search.seed_search import SeedSearch

ROOT: Final = Path(__file__).parent.parent
EQUIVALENT: Final = Path(__file__).with_name("equivalent_mutants.toml")
PACKAGES: Final = ("kraft/quorum", "kraft/replica", "metadata_log/log")
TESTS: Final = {
    "kraft.quorum": (
        "tests/kraft/quorum",
        "tests/kraft/replica/test_known_bugs.py",
        "tests/kraft/replica/test_remote_never_ends_node.py",
        "tests/kraft/replica/test_voter_changes.py",
        "tests/kraft/replica/test_replica_snapshots.py",
        "tests/kraft/replica/test_forged_answers.py",
        "tests/kraft/replica/test_replica_quorum.py",
    ),
    "kraft.replica": ("tests/kraft/replica",),
    "metadata_log.log": ("tests/metadata_log/log", "tests/kraft/replica/test_replica_crash.py"),
}
"""The tests that a mutant of a package has to pass, by the package's name."""
RUNS: Final = {
    "kraft.quorum": (("core", 8), ("replica", 3), ("dynamic", 4)),
    "kraft.replica": (("replica", 4), ("dynamic", 4), ("controller", 2), ("state-machine", 3)),
    "metadata_log.log": (("replica", 6), ("dynamic", 4)),
}
"""The simulated runs after the tests: the members and the number of seeds from 0 on."""
SECONDS: Final = 150
"""The limit on one mutant. A mutant that takes longer is reported as timed out, which counts as found."""

_BOUNDARY: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_OPPOSITE: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_NAMES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}


class SourceMutant(Struct, frozen=True):
    """One changed function. `number` counts the mutants of the module; the key does not depend on line numbers."""

    module: str
    function: str
    line: int
    number: int
    before: str
    after: str
    repeat: int

    @property
    def key(self) -> str:
        """The identity of the mutant in the list of equivalent mutants."""
        again = f" ({self.repeat})" if self.repeat > 1 else ""
        return f"{self.module}:{self.function}: {self.before} => {self.after}{again}"


class Outcome(Struct, frozen=True):
    """What became of a mutant: `killed`, `survived`, `timed out` or `equivalent`, and by what or why."""

    mutant: SourceMutant
    result: str
    by: str = ""
    seconds: float = 0.0


class _Change(ast.NodeTransformer):
    """Counts the possible changes of a module and makes the one with the given number."""

    def __init__(self, number: int | None = None) -> None:
        self.found: list[tuple[str, int, str, str]] = []
        """For each change the function, the line, and the source before and after."""
        self._number = number
        self._where: list[str] = []
        self._is_class: list[bool] = []

    # Scopes

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._where.append(node.name)
        self._is_class.append(True)
        node.body = [self._visited(one) for one in node.body]
        self._where.pop()
        self._is_class.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if self._in_function:
            self._visit_body(node.body)
            return node
        self._where.append(node.name)
        self._is_class.append(False)
        self._visit_body(node.body)
        self._where.pop()
        self._is_class.pop()
        return node

    def visit_Module(self, node: ast.Module) -> ast.AST:
        node.body = [
            self._visited(one) if isinstance(one, ast.ClassDef | ast.FunctionDef) else one for one in node.body
        ]
        return node

    @property
    def _in_function(self) -> bool:
        return bool(self._is_class) and not self._is_class[-1]

    def _visited(self, node: ast.stmt) -> ast.stmt:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            changed = self.visit(node)
            assert isinstance(changed, ast.stmt)
            return changed
        return node

    def _visit_body(self, body: list[ast.stmt]) -> None:
        first = 1 if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) else 0
        body[first:] = [self._statement(one) for one in body[first:]]

    # Changes

    def _offer(self, node: ast.AST, changed: ast.AST) -> bool:
        """Note a change; whether it is the one to make."""
        function = ".".join(self._where)
        before, after = (" ".join(ast.unparse(one).split()) for one in (node, changed))
        self.found.append((function, getattr(node, "lineno", 0), _short(before), _short(after)))
        return len(self.found) - 1 == self._number

    def _statement(self, node: ast.stmt) -> ast.stmt:
        match node:
            case ast.Assert() | ast.Raise(exc=ast.Call(func=ast.Name(id="AssertionError"))):
                return node
            case ast.Expr(value=ast.Call()) if not _is_report(node.value):
                if self._offer(node, ast.Pass()):
                    return ast.copy_location(ast.Pass(), node)
            case ast.Expr(value=ast.Call()):
                return node
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign() | ast.Delete():
                if self._offer(node, ast.Pass()):
                    return ast.copy_location(ast.Pass(), node)
            case ast.Raise() | ast.Break() | ast.Continue():
                if self._offer(node, ast.Pass()):
                    return ast.copy_location(ast.Pass(), node)
            case ast.Return(value=None):
                if self._offer(node, ast.Pass()):
                    return ast.copy_location(ast.Pass(), node)
            case ast.Return(value=value) if not isinstance(value, ast.Constant):
                none = ast.copy_location(ast.Return(ast.copy_location(ast.Constant(None), node)), node)
                if self._offer(node, none):
                    return none
        changed = self.visit(node)
        assert isinstance(changed, ast.stmt)
        return changed

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Visit the statements and the expressions below, but no annotation and no text."""
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns", "decorator_list", "type_params", "pattern", "args"} and not (
                name == "args" and isinstance(node, ast.Call)
            ):
                continue
            if isinstance(value, list):
                value[:] = [
                    self._statement(one)
                    if isinstance(one, ast.stmt)
                    else self.visit(one)
                    if isinstance(one, ast.AST)
                    else one
                    for one in value
                ]
            elif isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        return self._condition(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        return self._condition(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        return self._condition(node)

    def _condition(self, node: ast.If | ast.While | ast.IfExp) -> ast.AST:
        negated = _negated(node.test)
        chosen = not isinstance(node.test, ast.Compare | ast.UnaryOp) and self._offer(node.test, negated)
        self.generic_visit(node)
        if chosen:
            node.test = negated
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        for at, operator in enumerate(node.ops):
            for table in (_BOUNDARY, _OPPOSITE):
                other = table.get(type(operator))
                if other is None:
                    continue
                operators = [other() if at == place else one for place, one in enumerate(node.ops)]
                changed = ast.copy_location(ast.Compare(node.left, operators, node.comparators), node)
                if self._offer(node, changed):
                    return changed
        return self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        other: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        changed = ast.copy_location(ast.BoolOp(other, node.values), node)
        return changed if self._offer(node, changed) else self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.Not) and self._offer(node, node.operand):
            return node.operand
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        other = _ARITHMETIC.get(type(node.op))
        if other is not None:
            changed = ast.copy_location(ast.BinOp(node.left, other(), node.right), node)
            if self._offer(node, changed):
                return changed
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        value = node.value
        if isinstance(value, bool):
            changed = ast.copy_location(ast.Constant(not value), node)
        elif isinstance(value, int):
            changed = ast.copy_location(ast.Constant(value + 1), node)
        else:
            return node
        return changed if self._offer(node, changed) else node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in _NAMES:
            changed = ast.copy_location(ast.Name(_NAMES[node.id], node.ctx), node)
            return changed if self._offer(node, changed) else node
        return node


def _is_report(node: ast.expr) -> bool:
    """Whether a call only reports a peer's fault: a text for the log, which no rule of the protocol depends on."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith("report_peer_fault")


def _negated(test: ast.expr) -> ast.expr:
    return ast.copy_location(ast.UnaryOp(ast.Not(), test), test)


def _short(text: str) -> str:
    return text if len(text) <= 90 else f"{text[:89]}…"


class Source:
    """One module of the product, with its possible changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = ".".join(path.relative_to(ROOT).with_suffix("").parts)

    @cached_property
    def mutants(self) -> list[SourceMutant]:
        """All mutants of the module, in the order of the source."""
        changes = _Change()
        changes.visit(ast.parse(self.path.read_text()))
        seen: Counter[tuple[str, str, str]] = Counter()
        mutants = []
        for number, (function, line, before, after) in enumerate(changes.found):
            seen[function, before, after] += 1
            repeat = seen[function, before, after]
            mutants.append(SourceMutant(self.name, function, line, number, before, after, repeat))
        return mutants

    def code_of(self, mutant: SourceMutant) -> CodeType:
        """The code of the changed function."""
        change = _Change(mutant.number)
        tree = ast.fix_missing_locations(change.visit(ast.parse(self.path.read_text())))
        found = [one for one in _codes(compile(tree, str(self.path), "exec")) if one.co_qualname == mutant.function]
        sound = [
            one
            for one in _codes(compile(self.path.read_text(), str(self.path), "exec"))
            if one.co_qualname == mutant.function
        ]
        (code,) = (new for new, old in zip(found, sound, strict=True) if new != old)
        return code


def _codes(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _codes(one)


def _function(module: ModuleType, name: str, first_line: int) -> FunctionType:
    """The function object of a qualified name: unwrapped from properties, class methods and decorators."""
    owner: object = module
    for part in name.split("."):
        owner = vars(owner)[part]
    for _ in range(4):
        if isinstance(owner, property):
            found = [one for one in (owner.fget, owner.fset) if one is not None]
            owner = next(one for one in found if one.__code__.co_firstlineno == first_line)
        for inner in ("__wrapped__", "__func__", "func"):
            owner = getattr(owner, inner, owner)
        if isinstance(owner, FunctionType) and not hasattr(owner, "__wrapped__"):
            return owner
    raise AssertionError(f"{name} is no function")


def sources() -> list[Source]:
    """The modules of the packages, in the order of their paths."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [Source(path) for path in paths if path.name != "__init__.py"]


class _First:
    """A plugin of pytest that remembers the first failure."""

    def __init__(self) -> None:
        self.failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a failed test."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember a module that cannot be imported."""
        if report.failed and not self.failed:
            self.failed = f"the import of {report.nodeid}"


def _examine(package: str) -> str:
    """Run the tests and the simulation of a package; what has failed, or nothing."""
    first = _First()
    quiet = ["-p", "no:cacheprovider", "-n", "0", "-q", "-x", "--tb=no", "--hypothesis-seed=0"]
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        code = pytest.main([*quiet, *TESTS[package]], plugins=[first])
    if code != pytest.ExitCode.OK:
        return first.failed or f"pytest, exit code {code}"
    for members, seeds in RUNS[package]:
        search = SeedSearch(members=members)
        for seed in range(seeds):
            outcome = search.run(seed)
            if isinstance(outcome, Schedule):
                return f"kraft sim run --members {members} --seeds {seed}: {outcome.violated}"
    return ""


def try_mutant(source: Source, mutant: SourceMutant | None, package: str, seconds: float = SECONDS) -> Outcome:
    """Plant a mutant in a process of its own, and examine the package there; without a mutant the sound code."""
    assert mutant is None or mutant.module == source.name
    begin = time.monotonic()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        by = "the examination itself"
        try:
            os.setsid()
            os.close(reading)
            if mutant is not None:
                code = source.code_of(mutant)
                function = _function(importlib.import_module(source.name), mutant.function, code.co_firstlineno)
                function.__code__ = code
            by = _examine(package)
        except BaseException as failure:
            by = f"{type(failure).__name__}: {failure}"
        finally:
            os.write(writing, msgspec.json.encode(by))
            os._exit(0)
    os.close(writing)
    is_done = bool(select.select([reading], [], [], seconds)[0])
    answer = os.read(reading, 1 << 16) if is_done else b""
    os.close(reading)
    if not is_done:
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    took = time.monotonic() - begin
    shown = mutant or SourceMutant(source.name, "", 0, 0, "", "", 1)
    if not is_done:
        return Outcome(shown, "timed out", f"no result within {seconds:.0f} s", took)
    by = msgspec.json.decode(answer, type=str) if answer else "the end of the process"
    return Outcome(shown, "killed" if by else "survived", by, took)


def equivalent() -> dict[str, str]:
    """The reviewed equivalent mutants: the reason by key."""
    listed = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["equivalent"]
    return {one["mutant"]: one["because"] for one in listed}


def package_of(source: Source) -> str:
    """The package of a module, of those in `TESTS`."""
    return next(package for package in TESTS if source.name.startswith(f"{package}."))


def report(outcomes: list[Outcome], total: int, seed: int, seconds: float) -> str:
    """The report of a run as a page."""
    counts = Counter(one.result for one in outcomes)
    lines = [
        "# Mutants of the source",
        "",
        f"`python bench/mutate_source.py --sample {len(outcomes)} --seed {seed}` on {datetime.now(UTC):%Y-%m-%d}:",
        f"{len(outcomes)} of {total:,} mutants of `kraft.quorum`, `kraft.replica` and `metadata_log.log` were tried, "
        f"in {seconds / 60:.0f} minutes.",
        "",
        "| result | mutants |",
        "| --- | --- |",
        *(f"| {result} | {counts[result]} |" for result in ("killed", "timed out", "equivalent", "survived")),
        "",
        "| mutant | result | by, or why |",
        "| --- | --- | --- |",
    ]
    for one in sorted(outcomes, key=lambda one: (one.result != "survived", one.result, one.mutant.key)):
        where = f"`{one.mutant.module}` `{one.mutant.function}`"
        what = f"`{one.mutant.before}` → `{one.mutant.after}`".replace("|", "\\|")
        lines.append(f"| {where}: {what} | {one.result} | {one.by.replace('|', '/')} |")
    return "\n".join([*lines, ""])


def check(known: list[Source]) -> list[str]:
    """The keys of equivalent mutants that do not exist any more."""
    keys = {mutant.key for source in known for mutant in source.mutants}
    return [key for key in equivalent() if key not in keys]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=60, metavar="N", help="how many mutants to try; default 60")
    parser.add_argument("--seed", type=int, default=1, help="determines the sample; default 1")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="leave out the first N of the sample")
    parser.add_argument("--package", choices=tuple(TESTS), help="only the mutants of this package")
    parser.add_argument("--only", action="append", metavar="KEY", help="try this mutant; may be given several times")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report there")
    parser.add_argument("--log", type=Path, metavar="FILE", help="append each outcome, and take over those in it")
    parser.add_argument("--list", action="store_true", help="print the keys of all mutants")
    parser.add_argument("--check", action="store_true", help="verify the list of equivalent mutants")
    options = parser.parse_args()
    known = [one for one in sources() if options.package in (None, package_of(one))]
    everything = [(source, mutant) for source in known for mutant in source.mutants]
    if options.list:
        print("\n".join(mutant.key for _, mutant in everything))
        return
    if options.check:
        gone = check(known)
        print("\n".join([f"{len(equivalent())} equivalent mutants", *(f"no such mutant: {key}" for key in gone)]))
        sys.exit(bool(gone))
    if options.only:
        chosen = [pair for pair in everything if pair[1].key in options.only]
        if len(chosen) != len(options.only):
            sys.exit("no such mutant: " + ", ".join(set(options.only) - {pair[1].key for pair in chosen}))
    else:
        chosen = random.Random(options.seed).sample(everything, options.sample)[options.skip :]
    begin = time.monotonic()
    outcomes = list(_tried(chosen, options.log))
    survivors = [one for one in outcomes if one.result == "survived"]
    print(f"{len(outcomes)} of {len(everything)} mutants, {len(survivors)} survived")
    if options.report is not None:
        text = report(outcomes, len(everything), options.seed, time.monotonic() - begin)
        options.report.write_text(text, encoding="utf-8")
    sys.exit(bool(survivors))


def _tried(chosen: list[tuple[Source, SourceMutant]], log: Path | None) -> Iterator[Outcome]:
    """The outcome of each mutant, those of an earlier run from its log."""
    reviewed = equivalent()
    lines = log.read_bytes().splitlines() if log is not None and log.exists() else []
    earlier = {one.mutant.key: one for one in (msgspec.json.decode(line, type=Outcome) for line in lines)}
    for source, _ in chosen:
        importlib.import_module(source.name)
    for source, mutant in chosen:
        if mutant.key in reviewed:
            outcome = Outcome(mutant, "equivalent", reviewed[mutant.key])
        elif mutant.key in earlier and earlier[mutant.key].result != "survived":
            outcome = earlier[mutant.key]
        else:
            outcome = try_mutant(source, mutant, package_of(source))
            if log is not None:
                with log.open("ab") as file:
                    file.write(msgspec.json.encode(outcome) + b"\n")
        print(f"{outcome.result:10} {outcome.seconds:5.1f} s  {mutant.key}  {outcome.by}", flush=True)
        yield outcome


if __name__ == "__main__":
    main()
