"""Tests that need a program which a machine may lack."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

WITHOUT = "TESTS_WITHOUT"
"""The variable with the names of what this machine may lack, with commas."""


def leave_out(what: str, why: str) -> NoReturn:
    """Skip a test for want of a program; fail under CI=true, unless the machine is known to lack it."""
    if os.environ.get("CI") == "true" and what not in os.environ.get(WITHOUT, "").split(","):
        pytest.fail(f"{why}. If this machine is to do without: {WITHOUT}={what}", pytrace=False)
    pytest.skip(why)
