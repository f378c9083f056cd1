"""The changes that make a mutant: one changed function of a module, given to the running function object.

A change is another comparison, a negated condition, `and` for `or`, another constant or operator, a removed statement
or a dropped result. Annotations, texts, assertions, decorators and default values are not changed.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final

from msgspec import Struct

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = {
    "kraft.quorum": ROOT / "kraft/quorum",
    "metadata_log.log": ROOT / "metadata_log/log",
    "kraft.replica": ROOT / "kraft/replica",
    "kraft.process": ROOT / "kraft/process",
    "kraft.state_machine": ROOT / "kraft/state_machine",
}
"""The packages with mutants, those that are tried first in front."""

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
    lines: tuple[int, int]
    """The first and the last line of the changed statement, or of the head of a compound statement."""
    number: int
    before: str
    after: str
    repeat: int

    @property
    def key(self) -> str:
        """The identity of the mutant in the list of equivalent mutants."""
        again = f" ({self.repeat})" if self.repeat > 1 else ""
        return f"{self.module}:{self.function}: {self.before} => {self.after}{again}"


class _Change(ast.NodeTransformer):
    """Counts the possible changes of a module and makes the one with the given number."""

    def __init__(self, number: int | None = None) -> None:
        self.found: list[tuple[str, tuple[int, int], str, str]] = []
        """For each change the function, the lines, and the source before and after."""
        self._lines = 0, 0
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
        lines, statement = _lines_of(node), self._lines
        if statement[0] <= lines[0] <= statement[1]:
            lines = statement
        self.found.append((function, lines, _short(before), _short(after)))
        return len(self.found) - 1 == self._number

    def _statement(self, node: ast.stmt) -> ast.stmt:
        self._lines = _lines_of(node)
        match node:
            case ast.Assert() | ast.Raise(exc=ast.Call(func=ast.Name(id="AssertionError"))):
                return node
            case ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))):
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


def _lines_of(node: ast.AST) -> tuple[int, int]:
    """The lines of an expression or of a simple statement; those of the head of a compound statement."""
    match node:
        case ast.If(test=head) | ast.While(test=head) | ast.For(iter=head) | ast.Match(subject=head):
            return node.lineno, head.end_lineno or head.lineno
        case ast.With(items=items):
            head = items[-1].context_expr
            return node.lineno, head.end_lineno or head.lineno
        case ast.Try():
            return node.lineno, node.lineno
        case ast.stmt() | ast.expr():
            return node.lineno, node.end_lineno or node.lineno
        case _:
            return 0, 0


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
        for number, (function, lines, before, after) in enumerate(changes.found):
            seen[function, before, after] += 1
            repeat = seen[function, before, after]
            mutants.append(SourceMutant(self.name, function, lines, number, before, after, repeat))
        return mutants

    @cached_property
    def digests(self) -> dict[str, str]:
        """A digest of the source of each function, by its qualified name: an outcome holds only for this source."""
        digests: dict[str, str] = {}

        def visit(node: ast.AST, where: tuple[str, ...]) -> None:
            for one in ast.iter_child_nodes(node):
                if isinstance(one, ast.ClassDef | ast.FunctionDef):
                    name = ".".join((*where, one.name))
                    text = digests.get(name, "") + ast.unparse(one)
                    digests[name] = hashlib.sha256(text.encode()).hexdigest()[:12]
                    visit(one, (*where, one.name))

        visit(ast.parse(self.path.read_text()), ())
        return digests

    def plant(self, mutant: SourceMutant) -> None:
        """Give the function of this process the changed code.

        Raises:
            ValueError: The compiler makes the same code of both, or the changed function no longer uses a variable of
                the function around it.
        """
        assert mutant.module == self.name
        code = self.code_of(mutant)
        function_of(self.name, mutant.function, code.co_firstlineno).__code__ = code

    def code_of(self, mutant: SourceMutant) -> CodeType:
        """The code of the changed function."""
        change = _Change(mutant.number)
        tree = ast.fix_missing_locations(change.visit(ast.parse(self.path.read_text())))
        found = [one for one in codes(compile(tree, str(self.path), "exec")) if one.co_qualname == mutant.function]
        sound = [
            one
            for one in codes(compile(self.path.read_text(), str(self.path), "exec"))
            if one.co_qualname == mutant.function
        ]
        changed = [new for new, old in zip(found, sound, strict=True) if new != old]
        if len(changed) != 1:
            raise ValueError("the compiler makes the same code of both")
        return changed[0]


def codes(code: CodeType) -> Iterator[CodeType]:
    """The codes of all functions within a code."""
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from codes(one)


def function_of(module: str, name: str, first_line: int) -> FunctionType:
    """The function object of a qualified name: unwrapped from properties, class methods and decorators."""
    owner: object = importlib.import_module(module)
    for part in name.split("."):
        owner = vars(owner)[part]
    for _ in range(4):
        if isinstance(owner, property):
            found = [one for one in (owner.fget, owner.fset) if one is not None]
            owner = next(one for one in found if one.__code__.co_firstlineno == first_line)
        if hasattr(owner, "cache_clear"):
            owner.cache_clear()
        for inner in ("__wrapped__", "__func__", "func"):
            owner = getattr(owner, inner, owner)
        if isinstance(owner, FunctionType) and not hasattr(owner, "__wrapped__"):
            return owner
    raise AssertionError(f"{name} is no function")


def sources(package: str) -> list[Source]:
    """The modules of a package, in the order of their paths."""
    return [Source(path) for path in sorted(PACKAGES[package].rglob("*.py")) if path.name != "__init__.py"]
