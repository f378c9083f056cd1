"""The numbers that clients have pushed last, in a table with bounds (Kafka leaves this to a plug-in)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from msgspec import Struct

from kraft.broker.telemetry.payload import Labels, Point
from kraft.limits import TELEMETRY_SERIES, TELEMETRY_SERIES_BYTES
from metadata_log.types import Uuid

_SERIES_BYTES: Final = 300
"""The bytes of a series beside its texts."""


class Series(Struct, gc=False):
    """One number of a client. A counter holds the sum of what was pushed as a growth."""

    name: str
    labels: Labels
    value: float
    is_counter: bool


class Pushed(Struct):
    """All numbers of one client, and the labels that name the client."""

    labels: Labels
    series: dict[tuple[str, Labels, bool], Series]
    expires_ms: int
    bytes: int


class PushedTable:
    """The last push of each client. A push replaces the one before; what grows goes on from there."""

    def __init__(self) -> None:
        self._all: OrderedDict[Uuid, Pushed] = OrderedDict()
        self._series = self._bytes = 0

    def put(self, client_id: Uuid, labels: Labels, points: list[Point], expires_ms: int) -> None:
        """Take a push. Clients that have pushed longest ago give way if the table is full."""
        before = self._all.get(client_id)
        known = {} if before is None else before.series
        series: dict[tuple[str, Labels, bool], Series] = {}
        size = 0
        for one in points:
            key = one.name, one.labels, one.is_counter
            value = one.value
            if one.is_delta and (last := series.get(key) or known.get(key)) is not None:
                value += last.value
            series[key] = Series(one.name, one.labels, value, one.is_counter)
            size += _SERIES_BYTES + len(one.name) + sum(len(name) + len(text) for name, text in one.labels)
        self.remove(client_id)
        self._all[client_id] = Pushed(labels, series, expires_ms, size)
        self._series += len(series)
        self._bytes += size
        while len(self._all) > 1 and (self._series > TELEMETRY_SERIES or self._bytes > TELEMETRY_SERIES_BYTES):
            self.remove(next(iter(self._all)))

    def keep(self, client_id: Uuid, expires_ms: int) -> None:
        """A client lives on, with nothing new to tell."""
        known = self._all.get(client_id)
        if known is not None:
            known.expires_ms = expires_ms

    def remove(self, client_id: Uuid) -> None:
        """Forget a client; an unknown id is allowed."""
        gone = self._all.pop(client_id, None)
        if gone is not None:
            self._series -= len(gone.series)
            self._bytes -= gone.bytes

    def live(self, now_ms: int) -> list[Pushed]:
        """All pushes that have not expired; the others are forgotten."""
        for client_id in [key for key, one in self._all.items() if one.expires_ms <= now_ms]:
            self.remove(client_id)
        return list(self._all.values())

    @property
    def series(self) -> int:
        """The number of series of all clients."""
        return self._series
