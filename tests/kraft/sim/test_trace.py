"""The trace of a run says the same on every system."""

from __future__ import annotations

import errno

import pytest

from kraft.sim.world.trace import Trace

EIO_OF_A_BROWSER = 29


def traced(number: int) -> Trace:
    trace = Trace()
    trace.add(10, 1, f"fetch: OSError {OSError(number, 'write failed', '/log/x')}")
    return trace


def test_an_error_of_the_system_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    here = traced(errno.EIO)
    assert here.text == "10 1 fetch: OSError [EIO] write failed: '/log/x'"
    digest = here.digest
    monkeypatch.setattr("errno.errorcode", {EIO_OF_A_BROWSER: "EIO"})
    assert traced(EIO_OF_A_BROWSER).digest == digest
