"""The page of KIPs and clients is printed from its table, and the tests that it names exist."""

from __future__ import annotations

import re

from support import ROOT
from support.kip_page import PAGE, function_of, table, text_of

RELEASE = re.compile(r"^## (\d+\.\d+\.\d+)", re.MULTILINE)


def test_the_page_is_printed_from_the_table() -> None:
    assert PAGE.read_text() == text_of(table())


def test_every_test_that_is_named_exists() -> None:
    rows = table()
    named = [test for one in rows.kip for test in one.tests] + [test for one in rows.client for test in one.tests]
    assert [test for test in named if function_of(test) is None] == []


def test_what_works_has_a_test_and_a_release_and_what_does_not_has_neither() -> None:
    releases = RELEASE.findall((ROOT / "CHANGELOG.md").read_text())
    assert releases
    for one in table().kip:
        works = one.state != "no"
        assert bool(one.tests) is works, one
        assert (one.since in releases) is works, one
        assert works or not one.since, one
    assert all(one.tests for one in table().client)


def test_the_rows_are_in_order_and_each_is_there_once() -> None:
    numbers = [one.number for one in table().kip]
    assert numbers == sorted(set(numbers))
    names = [one.name for one in table().client]
    assert len(names) == len(set(names))
