"""What a machine lacks is left out only where somebody has said so."""

from __future__ import annotations

import pytest

from support.left_out import WITHOUT, leave_out


def test_a_missing_program_fails_under_ci_unless_the_machine_is_to_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv(WITHOUT, "pyright")
    with pytest.raises(pytest.fail.Exception, match=r"no postgres here. If this .*: TESTS_WITHOUT=postgresql"):
        leave_out("postgresql", "no postgres here")
    with pytest.raises(pytest.skip.Exception, match="no pyright here"):
        leave_out("pyright", "no pyright here")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="no postgres here"):
        leave_out("postgresql", "no postgres here")
