"""The page of what works, KIP by KIP, and with which clients: from a table whose tests exist.

    PYTHONPATH=tests python -m support.kip_page > docs/reference/kips.md

The versions of clients are those that the tests use: of the constraints, of the Go module, and of the releases of Kafka
that the fixtures in the tests' arguments start.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Final, Literal

import msgspec
from msgspec import Struct

from metadata_log.releases import NEWEST_RELEASE, SUPPORTED_RELEASES
from support import ROOT

TABLE: Final = ROOT / "tests/support/kips.toml"
PAGE: Final = ROOT / "docs/reference/kips.md"
SOAK: Final = "soak"
RELEASES: Final = {
    "kafka": SUPPORTED_RELEASES[-2],
    "newer_kafka": NEWEST_RELEASE,
    "turn_kafka": NEWEST_RELEASE,
    "older_kafka": SUPPORTED_RELEASES[0],
}
"""The releases of Kafka by the fixtures that start them."""
INTRODUCTION: Final = """\
# What works, KIP by KIP

Printed from `tests/support/kips.toml` by `tests/support/kip_page.py`. Each row that works names tests that say so, and
none of them is missing. A KIP that is not in the table may work or not: nobody has looked at it as such. *In soak* is
a test that only [soak runs](../../CONTRIBUTING.md#the-tests) have, and *in full* one that the short run leaves to the
full one. [Where it differs](../differences.md) from Apache Kafka, and [data requests](data-requests.md), say more.
"""


class Kip(Struct, frozen=True, forbid_unknown_fields=True):
    """An improvement proposal, and what works of it."""

    number: int
    title: str
    state: Literal["works", "in part", "no"]
    since: str = ""
    tests: list[str] = []
    note: str = ""


class Client(Struct, frozen=True, forbid_unknown_fields=True):
    """A client, where its version stands, and the tests that use it."""

    name: str
    version: str
    tests: list[str]


class Table(Struct, frozen=True, forbid_unknown_fields=True):
    """All rows."""

    kip: list[Kip]
    client: list[Client]


def table() -> Table:
    """The rows of the file."""
    return msgspec.toml.decode(TABLE.read_bytes(), type=Table)


def function_of(test: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function of a test, which may be a method; None if there is none of the name in the file."""
    path, _, name = test.partition("::")
    return _functions(path).get(name)


def text_of(page: Table) -> str:
    """The page."""
    lines = [INTRODUCTION, "| KIP | about | works | since | shown by | note |", "| --- | --- | --- | --- | --- | --- |"]
    for one in page.kip:
        shown = "<br>".join(map(_shown, one.tests))
        lines.append(f"| {one.number} | {one.title} | {one.state} | {one.since} | {shown} | {one.note} |")
    lines += ["", "## Clients", "", "| client | versions in the tests | shown by |", "| --- | --- | --- |"]
    for client in page.client:
        versions = ", ".join(_versions(client))
        lines.append(f"| {client.name} | {versions} | {'<br>'.join(map(_shown, client.tests))} |")
    lines += ["", "[Clients against brokers of ours](clients.md) says which codecs each client is tested with.", ""]
    return "\n".join(lines)


def _shown(test: str) -> str:
    """A test and how often it runs."""
    path, _, name = test.partition("::")
    tier = ""
    if SOAK in _marks(test):
        tier = " (in soak)"
    elif _is_in_full(path, name):
        tier = " (in full)"
    return f"`tests/{path}` `{name}`{tier}"


def _versions(client: Client) -> Iterator[str]:
    """The versions of a client that its tests use."""
    kind, _, name = client.version.partition(":")
    match kind:
        case "constraints":
            yield _found(rf"^{re.escape(name)}==(\S+)", "constraints.txt")
        case "go.mod":
            yield _found(rf"{re.escape(name)} v(\S+)", "tests/interop/brokers/franz/go.mod")
        case "kafka":
            functions = [found for test in client.tests if (found := function_of(test)) is not None]
            fixtures = {one.arg for function in functions for one in function.args.args}
            yield from sorted({RELEASES[one] for one in fixtures & RELEASES.keys()})
        case other:
            raise ValueError(f"{client.name}: a version stands in constraints, go.mod or kafka, not in {other}")


def _found(pattern: str, path: str) -> str:
    match = re.search(pattern, (ROOT / path).read_text(), re.MULTILINE)
    assert match is not None, f"{path} has no {pattern}"
    return match[1]


def _marks(test: str) -> str:
    """The source of the decorators of a test and of the marks of its file."""
    path, function = test.partition("::")[0], function_of(test)
    decorators = () if function is None else function.decorator_list
    marks = re.findall(r"^pytestmark = .*$", _source(path), re.MULTILINE)
    return " ".join((*map(ast.unparse, decorators), *marks))


@cache
def _source(path: str) -> str:
    return (ROOT / "tests" / path).read_text()


@cache
def _functions(path: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    if not (ROOT / "tests" / path).is_file():
        return {}
    nodes = ast.walk(ast.parse(_source(path)))
    return {one.name: one for one in nodes if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}


@cache
def _full() -> frozenset[str]:
    lines = (ROOT / "tests/full.txt").read_text().splitlines()
    return frozenset(line.split()[1] for line in lines if len(line.split()) > 1)


def _is_in_full(path: str, name: str) -> bool:
    return any(one == f"tests/{path}" or one.split("[")[0] == f"tests/{path}::{name}" for one in _full())


if __name__ == "__main__":
    print(text_of(table()), end="")
