"""The layers hold: reads every import statement and fails on the first edge that the table of layers does not allow."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from msgspec import Struct

from support import ROOT

LATE = ("kraft", "metadata_log", "transport")
"""Packages that load a name when it is first asked for."""
OURS = (*LATE, "pyspark_kraft")
FOR_TYPES = ("typing_extensions",)
"""Libraries of the type checker, which nothing imports at run time."""


class Layer(Struct, frozen=True):
    """Modules, and which of our modules they may import besides each other; every layer may import msgspec."""

    modules: tuple[str, ...]
    ours: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    pure: bool = True
    """Whether time, randomness, disk, network and scheduling only come in from outside."""


PAGE = (ROOT / "docs" / "architecture.md").read_text()


def rows(head: str) -> list[list[str]]:
    """The cells of a table of docs/architecture.md, by its first line."""
    _, found, rest = PAGE.partition(f"\n{head}\n")
    assert found, head
    lines = rest.partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


STANDS_FOR: dict[str, tuple[str, ...]] = {}


def names(cell: str) -> tuple[str, ...]:
    """The names in a cell, with those that a name in italics stands for."""
    assert re.fullmatch(r"—|(`[\w.]+`|\*\w+\*)(, (`[\w.]+`|\*\w+\*))*", cell), cell
    words = re.findall(r"[`*][\w.]+", cell)
    return tuple(each for word in words for each in ((word[1:],) if word[0] == "`" else STANDS_FOR[word[1:]]))


for group, members in rows("| name | stands for |"):
    STANDS_FOR[group.strip("*")] = names(members)

LAYERS = tuple(
    Layer(names(modules), names(ours), () if libraries == "—" else tuple(libraries.split(", ")), pure == "pure")
    for modules, ours, libraries, pure in rows("| modules | may import of ours | libraries | |")
)
PACKAGES = tuple(package.strip("`") for package, _ in rows("| package | |"))
"""The module map in layer order: a package imports only those above it. A module that lies directly in `kraft` counts
as a package of its own.
"""
CYCLES = {
    ("kraft.quorum.states", "kraft.quorum"): "`QUORUM_ORDER` orders the modules of both one by one",
    ("kraft.sim.nodes", "kraft.store"): "the machine of a store is pure; what is made of stores needs a node",
}
"""Imports against that order, each with its reason."""

QUORUM_ORDER = (
    ("values", "epoch_limit"),
    ("voters",),
    ("messages",),
    ("events", "effects"),
    ("voter_history", "log_view", "accumulator", "purgatory", "peers"),
    ("states", "joining"),
    ("quorum_state",),
    ("appending", "exchanges"),
    ("elections", "leadership", "replication", "snapshots", "membership", "reads"),
    ("core",),
    ("recorded",),
    ("recorded_turns",),
)
"""Within `kraft.quorum` imports go to the left, or stay."""

HEAVY = ("metadata_log.arrow", "metadata_log.tables", "metadata_log.spark", "metadata_log.report")
MAY_BE_HEAVY = ("kraft.cli", "kraft.testing", "pyspark_kraft")
IMPURE = {
    *("trio", "time", "os", "socket", "select", "threading", "logging", "asyncio"),
    *("subprocess", "multiprocessing", "queue", "secrets", "uuid", "signal", "tempfile", "shutil"),
}
DEVELOPER_TOOLS = {"metadata_log.serde.declare"}
"""Run by hand when Kafka's schemas change; nothing imports them."""


class Import(Struct, frozen=True):
    """One import of one module, or of one name out of it."""

    line: int
    module: str
    name: str = ""


@cache
def modules() -> dict[str, Path]:
    """Every module of ours, by its dotted name."""
    found = {}
    for path in sorted(path for package in OURS for path in (ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(tree: ast.AST, module: str, *, is_package: bool) -> Iterator[Import]:
    """Every import statement of a module, wherever it stands; `from package import module` names the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = module.split(".")[: None if is_package and node.level == 1 else is_package - node.level]
                base = ".".join([*parent, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield Import(node.lineno, inner) if inner in modules() else Import(node.lineno, base, alias.name)


@cache
def imports_of(module: str) -> tuple[Import, ...]:
    path = modules()[module]
    tree = ast.parse(path.read_text(), str(path))
    return tuple(imports(tree, module, is_package=path.name == "__init__.py"))


def is_under(module: str, roots: tuple[str, ...]) -> bool:
    return any(module == root or module.startswith(f"{root}.") for root in roots)


def layer_of(module: str) -> tuple[Layer, str]:
    """The layer with the longest root above a module, and that root. Bare package roots cover `__init__` only."""
    best = max(
        ((layer, root) for layer in LAYERS for root in layer.modules if is_under(module, (root,))),
        key=lambda found: len(found[1]),
    )
    assert best[1] != "kraft" or module == "kraft", f"{module} is in no layer: give it a row in docs/architecture.md"
    return best


def offence(module: str, wanted: Import) -> str | None:
    """Why `module` may not import what it does, or None."""
    layer, _ = layer_of(module)
    top = wanted.module.partition(".")[0]
    if top in OURS:
        # Rows inside of metadata_log only grant libraries: they are no layers of their own.
        own = ("metadata_log",) if is_under(module, ("metadata_log",)) else layer.modules
        heavy = is_under(wanted.module, HEAVY) and not is_under(module, (*HEAVY, *MAY_BE_HEAVY))
        return "this layer may not import that one" if heavy or not is_under(wanted.module, own + layer.ours) else None
    if top in sys.stdlib_module_names:
        return None if not layer.pure or module in DEVELOPER_TOOLS else impurity(top, wanted.name)
    return None if top in (*layer.libraries, "msgspec", *FOR_TYPES) else "this layer does without that library"


def impurity(top: str, name: str) -> str | None:
    """Why the pure set may not import this from the standard library, or None."""
    if top in IMPURE:
        return "time, disk, network and scheduling come in from outside"
    return "randomness is one Random that was passed in" if top == "random" and name != "Random" else None


@pytest.mark.parametrize("module", modules())
def test_imports_point_down(module: str) -> None:
    offences = [
        f"{modules()[module].relative_to(ROOT)}:{wanted.line}: imports {wanted.module} {wanted.name}: {why}"
        for wanted in imports_of(module)
        if (why := offence(module, wanted))
    ]
    assert not offences, "\n".join(offences)


def test_the_core_reads_from_values_to_core() -> None:
    """A reader of kraft.quorum never has to look ahead."""
    rank = {name: number for number, names in enumerate(QUORUM_ORDER) for name in names}
    inside = [module for module in modules() if module.startswith("kraft.quorum.")]
    assert inside
    for module in inside:
        here = rank[module.split(".")[2]]
        for wanted in imports_of(module):
            if wanted.module.startswith("kraft.quorum."):
                assert rank[wanted.module.split(".")[2]] <= here, f"{module}:{wanted.line} imports {wanted.module}"


def test_modules_have_no_import_cycle() -> None:
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " -> ".join([*way[way.index(module) :], module])
        if module in done:
            return
        for wanted in imports_of(module):
            if wanted.module in modules() and wanted.module != module:
                visit(wanted.module, (*way, module))
        done.add(module)

    for module in modules():
        visit(module, ())


def package_of(module: str) -> str:
    """The package that a module lies in; those that lie directly in `kraft` count each for itself."""
    parent = module.rpartition(".")[0]
    return module if modules()[module].name == "__init__.py" or parent in {"", "kraft"} else parent


def folder_of(module: str, depth: int) -> str:
    """The folder of so many names that a module lies in; a module that lies directly in a shorter one is its own."""
    return ".".join(package_of(module).split(".")[:depth])


def ways_round(edges: dict[tuple[str, str], str]) -> list[str]:
    """The imports between folders that lie on a cycle."""
    reached = {folder: {there for here, there in edges if here == folder} for folder, _ in edges}
    for middle, beyond in reached.items():
        for found in reached.values():
            if middle in found:
                found.update(beyond)
    return [why for (here, there), why in edges.items() if here in reached.get(there, ())]


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_folders_beside_each_other_have_no_cycle(depth: int) -> None:
    """A folder counts with all folders in it. What `CYCLES` excuses lies within one folder of `kraft`."""
    edges = {}
    for module in set(modules()) - {*LATE, "kraft.__main__"}:
        for wanted in imports_of(module):
            if wanted.module in modules() and wanted.module not in LATE:
                here, there = folder_of(module, depth), folder_of(wanted.module, depth)
                if not (is_under(here, (there,)) or is_under(there, (here,))):
                    edges[here, there] = f"{module}:{wanted.line} imports {wanted.module}"
    assert ways_round(edges) == []


def test_the_check_of_folders_finds_a_cycle() -> None:
    to, back = ("kraft.node", "kraft.operate"), ("kraft.operate", "kraft.node")
    assert ways_round({to: "to", ("kraft.operate", "kraft.admin"): "down"}) == []
    assert ways_round({to: "to", back: "back", ("kraft.operate", "kraft.admin"): "down"}) == ["to", "back"]
    longer = {("a", "b"): "ab", ("b", "c"): "bc", ("c", "a"): "ca", ("c", "d"): "cd"}
    assert ways_round(longer) == ["ab", "bc", "ca"]


def test_the_map_names_every_package() -> None:
    assert set(PACKAGES) == {package_of(module) for module in modules()} - {"kraft.__main__"}


def test_packages_import_those_above_them_in_the_map() -> None:
    """So there is no cycle between packages but where `CYCLES` gives the reason."""
    rank = {package: number for number, package in enumerate(PACKAGES)}
    against = {}
    for module in set(modules()) - {*LATE, "kraft.__main__"}:
        here = package_of(module)
        for wanted in imports_of(module):
            if wanted.module in modules() and rank[there := package_of(wanted.module)] > rank[here]:
                against[here, there] = f"{modules()[module].relative_to(ROOT)}:{wanted.line} imports {wanted.module}"
    assert [against[edge] for edge in against.keys() - CYCLES.keys()] == []
    assert CYCLES.keys() - against.keys() == set(), "these imports are gone: so must be their rows"


PACKAGE_FILES = [name for name, path in modules().items() if path.name == "__init__.py"]


@pytest.mark.parametrize("module", PACKAGE_FILES)
def test_a_package_only_re_exports(module: str) -> None:
    """An __init__ holds names, never behaviour."""
    path = modules()[module]
    for statement in ast.parse(path.read_text()).body:
        assert re_exports(statement), f"{path.relative_to(ROOT)}:{statement.lineno} does more than re-export"


def re_exports(statement: ast.stmt) -> bool:
    """Whether a statement only makes names known: now, to type checkers, or when one is first asked for (PEP 562)."""
    match statement:
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign(targets=[ast.Name(id="__all__" | "__version__" | "TYPE_CHECKING")]):
            return True
        case ast.Assign(value=ast.BinOp(op=ast.BitOr())):  # a sum type of what it re-exports
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return all(re_exports(inner) for inner in statement.body + statement.orelse)
        case ast.Assign(value=ast.Dict() as homes) | ast.AnnAssign(value=ast.Dict() as homes):
            return all(isinstance(home, ast.Constant) for home in homes.values)
        case ast.Assign(targets=[ast.Tuple(elts=hooks)], value=ast.Call(func=ast.Name(id="lazy_names"))):
            return [ast.unparse(hook) for hook in hooks] == ["__getattr__", "__dir__"]
        case ast.Assign(targets=[ast.Name(id="__dir__")], value=ast.Call(func=ast.Name(id="public_dir"))):
            return True
    return False


@pytest.mark.parametrize("package", [*LATE, "kraft.controller", "kraft.state_machine", "transport.protocol.messages"])
def test_lazily_loaded_names_agree_with_the_declared_ones(package: str) -> None:
    """What type checkers see in a package, what it promises and what it gives at run time are the same."""
    loaded = import_module(package)
    seen = {wanted.name: wanted.module for wanted in imports_of(package) if wanted.module in modules()}
    assert seen.pop("lazy_names") == "metadata_log.lazy_names"
    assert seen == loaded._HOMES
    assert sorted(seen) == sorted(loaded.__all__)
    assert set(seen) <= set(dir(loaded))
    for name, home in seen.items():
        assert getattr(loaded, name) is getattr(import_module(home), name)
        assert f"{package}.{name}" not in modules(), f"{name} is a module, too: whichever is imported last wins"
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        loaded.absent  # noqa: B018 (asking is the test)


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        (
            "import kraft.quorum.core, kraft.controller, kraft.replica, kraft.sim.runs.simulator",
            ("trio", "click", "rich"),
        ),
        (
            "import metadata_log.reading.reader, metadata_log.log",
            ("trio", "click", "rich", "pyarrow", "pyspark", "kraft.quorum"),
        ),
        ("import kraft.cli.main", ("trio", "kraft.quorum", "pyspark")),
        ("import kraft.cli.cluster.top", ("textual",)),
        ("import kraft.node.embed", ("click", "rich", "hypothesis", "pyspark")),
        ("import kraft.cli.run.serve", ("trio", "kraft.node")),
        (
            "import kraft.cli.run.node_process, kraft.process.hosting",
            (
                *("kraft.controller.controller", "kraft.controller.apis", "kraft.controller.server"),
                *("kraft.state_machine.server", "cryptography", "prometheus_client", "zstandard", "lz4"),
                *("transport.protocol.messages.create_acls", "transport.protocol.messages.share_fetch"),
            ),
        ),
    ],
)
def test_an_import_does_not_load_optional_packages(statement: str, absent: tuple[str, ...]) -> None:
    """The import statements of parent packages count, too: deciding needs no event loop, help texts need no node."""
    code = f"import sys; {statement}; print(*(name for name in {absent!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


PURE = [name for name in modules() if layer_of(name)[0].pure and name not in DEVELOPER_TOOLS]
BANNED_CALLS = {"open", "print", "input", "breakpoint", "__import__", "hash", "id", "exec", "eval"}
COMPILER = "metadata_log.serde.source"
"""The one module that makes code when it runs."""
COPIER = "kraft.sim.state.copier"
"""The one module that asks whether two names mean one object; no order and no text comes of that."""


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_call_nothing_impure(module: str) -> None:
    """Built-in functions reach the world, hash seeds and addresses without any import."""
    banned = BANNED_CALLS - {COMPILER: {"exec"}, COPIER: {"id"}}.get(module, set())
    offences = [
        f"{modules()[module].relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)[:80]}"
        for node in ast.walk(ast.parse(modules()[module].read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in banned
    ]
    assert not offences, "\n".join(offences)


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_iterate_over_no_set(module: str) -> None:
    """The order of a set of strings changes from process to process; `sorted` makes it ours."""
    offences = [
        f"{modules()[module].relative_to(ROOT)}:{where.lineno}: {ast.unparse(where)[:80]}"
        for where in set_iterations(ast.parse(modules()[module].read_text()))
    ]
    assert not offences, "\n".join(offences)


def set_iterations(tree: ast.AST) -> Iterator[ast.expr]:
    """Loops and comprehensions straight over a set expression (what a variable holds is not known here)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension) and makes_a_set(node.iter):
            yield node.iter
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"list", "tuple"}:
            yield from (argument for argument in node.args if makes_a_set(argument))


def makes_a_set(node: ast.expr) -> bool:
    match node:
        case ast.Set() | ast.SetComp() | ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.BinOp(op=ast.Sub() | ast.BitOr() | ast.BitAnd() | ast.BitXor()):
            return makes_a_set(node.left) or makes_a_set(node.right) or is_keys(node.left) or is_keys(node.right)
    return False


def is_keys(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys"


def test_reading_logs_needs_neither_arrow_nor_spark() -> None:
    """The code that is shipped to Spark's executors stays small."""
    reached, waiting = set(), ["metadata_log"]
    while waiting:
        module = waiting.pop()
        if module not in reached and module in modules():
            reached.add(module)
            waiting += [wanted.module for wanted in imports_of(module)]
    assert not [module for module in reached if is_under(module, HEAVY)]


@pytest.mark.parametrize(
    "line",
    [
        "for voter in set(voters) - acked: send(voter)",
        "for voter in {1, 2}: send(voter)",
        "[voter for voter in voters.keys() - acked]",
        "tuple({voter for voter in voters})",
    ],
)
def test_the_check_of_set_iteration_finds_samples(line: str) -> None:
    assert list(set_iterations(ast.parse(line)))
    assert not list(set_iterations(ast.parse("for voter in sorted(voters.keys() - acked): send(voter)")))


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("kraft.quorum.core", "import time"),
        ("kraft.quorum.core", "from random import randrange"),
        ("kraft.quorum.core", "from kraft.controller.decision.result import ControllerResult"),
        ("kraft.controller.controller", "from kraft.quorum.core import RaftCore"),
        ("kraft.controller.controller", "from kraft.broker.server import BrokerServer"),
        ("kraft.broker.server", "from kraft.controller.apis import APIS"),
        ("kraft.broker.metadata.reads", "from kraft.controller.decision.result import Steps"),
        ("kraft.access.refusals", "from kraft.reads.acls import describe_acls"),
        ("kraft.limits", "from kraft.config import Config"),
        ("kraft.metrics.samples", "from kraft.node.node import Node"),
        ("kraft.process.process", "import trio"),
        ("kraft.process.process", "from transport.tcp import TcpTransport"),
        ("kraft.process.process", "from kraft.node.node import Node"),
        ("metadata_log.records.batch", "from kraft.config import Config"),
        ("metadata_log.records.batch", "import pyarrow"),
        ("metadata_log.image.image", "import rpds"),
        ("transport.protocol.headers", "from metadata_log.log.log import MetadataLog"),
        ("transport.protocol.headers", "from transport.tcp import TcpTransport"),
        ("transport.tcp", "from kraft.replica.rpc.rpc import x"),
        ("kraft.node.node", "import asyncio_is_not_ours"),
    ],
)
def test_the_check_of_imports_and_calls_finds_samples(module: str, statement: str) -> None:
    """Each of these would be a hole in the layers."""
    (wanted,) = imports(ast.parse(statement), module, is_package=False)
    assert offence(module, wanted)


def test_the_deadline_that_never_comes_is_defined_once() -> None:
    defined = re.compile(r"^_?NEVER\w*(: \w+)? = (2\*\*|1 << )62", re.MULTILINE)
    assert [name for name, path in modules().items() if defined.search(path.read_text())] == ["metadata_log.types"]


def test_what_stands_for_none_is_defined_once() -> None:
    """The start offset of a share partition that nobody has chosen yet is a value of its interface."""
    defined = re.compile(r"^_?NO_(NODE|OFFSET|EPOCH|PRODUCER|SEQUENCE)(: \w+)? = -1$", re.MULTILINE)
    found = {name for name, path in modules().items() if defined.search(path.read_text())}
    assert found == {"metadata_log.types", "kraft.coordinators.shares.persister"}


def test_leader_contact_fields_have_one_owner() -> None:
    """Two defects came from modules that changed these fields by themselves."""
    owned = {"contact", "fetch_deadline_ms"}
    writers = {
        name
        for name, path in modules().items()
        if any(field in (text := path.read_text()) for field in owned)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in owned
    }
    assert writers == {"kraft.quorum.states.follower"}
