"""The page of faults is that of the list of faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults_page import EVERY, page
from kraft.operate.doctor.facts.catalog import CATALOG

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "doctor-faults.md"


def test_the_page_is_printed_from_the_list_of_faults() -> None:
    """The head of `faults_page` has the command that writes the page anew."""
    assert PAGE.read_text() == page(len(CATALOG))


@pytest.mark.parametrize("fault", EVERY, ids=lambda fault: fault.name)
def test_every_fault_names_checks_that_exist(fault: object) -> None:
    checks = {one.check for known in EVERY if known is fault for one in known.expected}
    assert checks
    assert checks <= CATALOG.keys()
