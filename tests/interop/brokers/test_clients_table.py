"""The page of the clients says which codec of which client is tested: as the tests do, and nothing more."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from msgspec import Struct
from test_clients_through_fail_over import EVERY, FEW

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "clients.md"
TESTS = Path(__file__).parent / "test_clients_through_fail_over.py"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


class Row(Struct, frozen=True):
    """A client, its codecs by default, as a soak and for a consumer, and the tests."""

    client: str
    by_default: list[str]
    soak: list[str]
    consumed: list[str]
    tests: list[str]


def codecs(cell: str) -> list[str]:
    """The codecs in a cell."""
    return [] if cell == "—" else cell.split(", ")


def rows() -> dict[str, Row]:
    """The rows of the page."""
    found: dict[str, Row] = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 5 and cells[0] not in {"client", "---"}:
            client, by_default, soak, consumed, tests = cells
            found[client] = Row(
                client, codecs(by_default), codecs(soak), codecs(consumed), re.findall(r"`(\w+)`", tests)
            )
    return found


def lists_in(test: str) -> list[list[str]]:
    """The lists and tuples of codecs that a test has in its body."""
    tree = ast.parse(TESTS.read_text())
    [function] = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == test]
    literals = [one for one in ast.walk(function) if isinstance(one, ast.List | ast.Tuple)]
    texts = [[each.value for each in one.elts if isinstance(each, ast.Constant)] for one in literals]
    return [[str(each) for each in one] for one in texts if one and set(one) <= set(CODECS)]


def test_every_row_names_tests_that_exist():
    text = TESTS.read_text()
    for row in rows().values():
        assert row.tests
        for name in row.tests:
            assert f"def {name}(" in text, name


def test_the_python_clients_have_the_codecs_of_the_page():
    for client in ("aiokafka", "confluent", "python"):
        row = rows()[client]
        assert row.by_default == [pair.codec or "none" for pair in FEW if pair.make == client]
        assert row.soak == row.consumed == [pair.codec or "none" for pair in EVERY if pair.make == client]


def test_the_other_clients_have_the_codecs_of_the_page():
    java, franz = rows()["java"], rows()["franz"]
    assert [java.by_default] == lists_in(java.tests[0])
    assert [java.soak] == lists_in(java.tests[1])
    assert sorted(java.consumed) == sorted([*java.by_default, *java.soak])
    assert [franz.soak] == lists_in(franz.tests[0])
    assert franz.consumed == franz.soak == CODECS
    assert 'compression.type=lz4"' in TESTS.read_text()
    assert rows()["java-performance"].soak == ["lz4"]
