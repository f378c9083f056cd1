"""Each soak test is in a portion."""

from __future__ import annotations

import re

import pytest

from support import ROOT
from support.soak.portions import LENGTHS, PORTIONS, portion_of, read_lengths


def test_a_test_is_in_the_portion_of_the_longest_beginning_of_its_name() -> None:
    assert portion_of("tests/kraft/sim/test_sim.py::test_a[1]") == "simulation"
    assert portion_of("tests/kraft/node/test_a.py::test_b") == "nodes"
    assert portion_of("tests/interop/doctor/test_a.py::test_b") == "kafka-repairs"
    with pytest.raises(KeyError, match="in no portion of soak"):
        portion_of("elsewhere/test_a.py::test_b")
    assert {portion_of(test) for test in read_lengths(LENGTHS.read_text())} == set(PORTIONS)


def test_lengths_are_of_tests_that_exist() -> None:
    lengths = read_lengths(LENGTHS.read_text())
    assert len(lengths) > 5
    for name, seconds in lengths.items():
        file, *_, function = name.split("::")
        assert re.search(rf"^ *(?:async )?def {function}\(", (ROOT / file).read_text(), re.MULTILINE), name
        assert seconds > 0
