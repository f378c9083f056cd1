"""Assertions in the modules of the scenarios say what they have found, as those in tests do."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.register_assert_rewrite(
    "confluent_load",
    "rolling",
    "scenario_client",
    "scenario_cluster",
    *(path.stem for path in Path(__file__).parent.glob("*_scenarios.py")),
)
