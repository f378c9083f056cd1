"""Each guided scenario of the lab shows what its answer says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from kraft.sim.lab.link import run_from
from kraft.sim.lab.session import LiveSession

SCENARIOS: Final[list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "docs" / "lab" / "scenarios.json").read_text()
)


def test_there_are_ten() -> None:
    assert len({one["title"] for one in SCENARIOS}) == 10


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one["title"])
def test_the_run_shows_what_the_answer_says(scenario: dict[str, Any]) -> None:
    session = LiveSession(run_from(scenario["fragment"]))
    try:
        session.advance(scenario["until"], 100_000)
        seen = [
            text
            for moment in session.notes.told
            if moment.at_ms >= scenario["from"]
            for text in (moment.what, *moment.details, moment.why)
        ]
        told = (*seen, session.verdict)
        missing = [one for one in scenario["shows"] if not any(re.search(one, text) for text in told)]
        assert missing == []
        assert (session.failure is not None) == ("bug=" in scenario["fragment"])
    finally:
        session.close()
