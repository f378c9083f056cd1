"""Timed work of the active controller (Kafka: `PeriodicTaskControlManager`)."""

from __future__ import annotations

from typing import Final

from kraft.controller.decision.result import ControllerResult, VersionedRecord
from metadata_log.records.metadata import NoOpRecord
from metadata_log.types import NEVER_MS

NO_OP: Final = ControllerResult((VersionedRecord(NoOpRecord()),), is_atomic=False)
"""The record that changes nothing. It advances the high watermark and the time of the last commit (KIP-835)."""


class Periodic:
    """The deadline of periodic work, such as the NoOp record: one interval after the last run."""

    __slots__ = ("_interval_ms", "deadline_ms")

    def __init__(self, max_idle_interval_ms: int) -> None:
        self._interval_ms = max_idle_interval_ms
        self.deadline_ms = NEVER_MS

    def arm(self, now_ms: int) -> None:
        """Restart the interval; an interval of 0 means never."""
        self.deadline_ms = now_ms + self._interval_ms if self._interval_ms > 0 else NEVER_MS

    def disarm(self) -> None:
        """Stop the timer."""
        self.deadline_ms = NEVER_MS
