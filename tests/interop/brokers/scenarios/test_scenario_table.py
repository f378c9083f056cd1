"""The pages of the scenarios say what there is: each row of a plan, each scenario, and only tests that exist."""

from __future__ import annotations

import re

import pytest
from msgspec import Struct

from support import ROOT
from support.scenarios.every_coordinator_scenario import COORDINATOR_SCENARIOS
from support.scenarios.every_scenario import SCENARIOS

REFERENCE = ROOT / "docs" / "reference"
PLANS = {
    "broker-scenarios.md": [f"B{number:02}" for number in range(1, 41)],
    "coordinator-scenarios.md": [f"C{number:02}" for number in range(1, 41)],
}
FUNCTIONS = [(one.id, one.run.__name__) for one in SCENARIOS]
FUNCTIONS += [(one.id, one.run.__name__) for one in COORDINATOR_SCENARIOS]
NOT_BUILT = "not built"


class Row(Struct, frozen=True):
    """A row of the table."""

    plan_id: str
    shown_by: str
    results: tuple[str, ...]
    remarks: str

    @property
    def scenarios(self) -> set[str]:
        """The functions that the row names."""
        return set(re.findall(r"`(\w+)`", self.shown_by))

    @property
    def tests(self) -> list[tuple[str, str]]:
        """The tests that the row names: their files and names."""
        return re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", self.shown_by)


def rows(page: str) -> list[Row]:
    """The rows of a page."""
    found: list[Row] = []
    for line in (REFERENCE / page).read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells and re.fullmatch(r"[BC]\d\d†?", cells[0]):
            plan_id, _, shown_by, *results, remarks = cells
            found.append(Row(plan_id.removesuffix("†"), shown_by, tuple(results), remarks))
    return found


ROWS = [row for page in PLANS for row in rows(page)]


@pytest.mark.parametrize("page", PLANS)
def test_the_table_has_each_row_of_the_plan_once(page: str):
    assert [row.plan_id for row in rows(page)] == PLANS[page]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.plan_id)
def test_a_row_names_its_scenarios_and_tests_that_exist(row: Row):
    assert row.scenarios == {name for plan_id, name in FUNCTIONS if plan_id == row.plan_id}
    for file, name in row.tests:
        assert f"def {name}(" in (ROOT / file).read_text(), f"{file}::{name}"
    assert bool(row.scenarios or row.tests) != (NOT_BUILT in row.shown_by)
