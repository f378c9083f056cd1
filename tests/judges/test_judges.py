"""The tables of the judges are whole, the page is made of what they printed, and classes of Kafka's tests pass."""

from __future__ import annotations

import pytest

from support.interop.kafka_or_skip import skip_here
from support.judges import junit, kfake
from support.judges.ducktape_table import manifest
from support.judges.table import KINDS, PAGE, kept, page


def test_each_class_of_kafkas_tests_is_there_once_with_reasons() -> None:
    known = junit.table()
    names = [one.name for one in known.classes] + list(known.not_run)
    assert len(set(names)) == len(names) >= 10
    assert junit.faults_of(known) == []
    assert len(junit.labelled(known.classes)) == len(known.classes)
    assert {one.cluster for one in known.classes} <= {"isolated", "combined", "both"}


def test_each_parametrization_of_the_system_tests_is_there_once_with_reasons() -> None:
    known = manifest()
    assert len({one.label for one in known}) == len(known) >= 40
    assert all(2 <= one.nodes <= 12 and not (one.failed and one.sometimes) for one in known)
    reasons = [one.failed or one.sometimes for one in known if one.failed or one.sometimes]
    assert all(reason.partition(":")[0] in KINDS for reason in reasons)


def test_the_tests_of_the_fake_broker_have_reasons() -> None:
    assert kfake.faults_of(kfake.table()) == []


def test_the_page_is_made_of_what_is_kept() -> None:
    assert PAGE.read_text() == page(kept()), "uv run poe judge page"


@pytest.mark.soak
@pytest.mark.kafka
@pytest.mark.parametrize("name", [label for label, one in junit.labelled(junit.table().classes).items() if one.passed])
def test_a_class_of_kafkas_tests_passes(name: str) -> None:
    if junit.missing():
        skip_here(junit.missing())
    assert junit.main([name]) == 0
