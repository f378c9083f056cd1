"""The number of changes by topic and by broker, for each hour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from metadata_log.history.causes import without
from metadata_log.history.open_rows import Sink, When
from metadata_log.history.partition_rows import GONE, Cell, Shape
from metadata_log.image.configs import ResourceType
from metadata_log.image.topics import NO_LEADER
from metadata_log.records import metadata as records

_HOUR_MS: Final = 3_600_000
_PARTITION, _LEADER, _SHRINK, _EXPAND, _CONFIG, _FENCING, _REGISTRATION = range(7)


class _Counted:
    """The amounts that one change adds: to each broker's counters by their places, and to its topic's. Compared by
    identity.
    """

    __slots__ = ("brokers", "topic")

    def __init__(self, topic: Sequence[int], brokers: Sequence[tuple[str, int]]) -> None:
        self.topic = topic
        self.brokers = brokers


class Churn:
    """Counters of the present hour. An hour is written when the next one begins, so memory does not grow with time."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._hour: int | None = None
        self._summed: dict[tuple[str, str], list[int]] = {}
        self._waiting: dict[tuple[str, _Counted], int] = {}
        """How often each topic had each change, which `_counters` adds up."""

    @property
    def _counters(self) -> dict[tuple[str, str], list[int]]:
        """The counters of topics and brokers."""
        waiting, self._waiting = self._waiting, {}
        for (topic, counted), times in waiting.items():
            self._add("topic", topic, counted.topic, times)
            for broker, place in counted.brokers:
                self._add("broker", broker, (place,), times)
        return self._summed

    @_counters.setter
    def _counters(self, counters: dict[tuple[str, str], list[int]]) -> None:
        self._summed, self._waiting = counters, {}

    def on_time(self, when: When) -> None:
        """Begin a new hour if the time has reached one. A clock that goes back counts into the latest hour."""
        hour = when.timestamp - when.timestamp % _HOUR_MS
        if self._hour is None or hour > self._hour:
            self._flush()
            self._hour = hour

    def judge(self, old: Shape | None, new: Shape, *, is_raised: bool) -> _Counted | None:
        """The amounts that a change adds; creation and deletion of a topic do not count."""
        if old is None or new is GONE:
            return None
        topic, brokers = [_PARTITION], []
        moved = old.leader != new.leader
        for broker in (old.leader, new.leader) if moved else (new.leader,):
            if broker != NO_LEADER:
                brokers += [(str(broker), place) for place in ((_PARTITION, _LEADER) if moved else (_PARTITION,))]
        if moved:
            topic.append(_LEADER)
        before, now = old.partition.isr, new.partition.isr
        for changed, place in ((without(before, now), _SHRINK), (without(now, before), _EXPAND)):
            if changed:
                topic.append(place)
            brokers += [(str(broker), place) for broker in changed]
        return _Counted(topic, brokers)

    def follow(self, counted: _Counted, _: bytes, old: Cell | None, new: Cell) -> None:
        """Count one change."""
        of, waiting = (new[0].topic, counted), self._waiting
        waiting[of] = waiting.get(of, 0) + 1

    def on_config(self, record: records.ConfigRecord) -> None:
        """Count a change of a topic's or a broker's configuration."""
        if record.resource_type == ResourceType.TOPIC:
            self._add("topic", record.resource_name, (_CONFIG,))
        elif record.resource_type == ResourceType.BROKER and record.resource_name:
            self._add("broker", record.resource_name, (_CONFIG,))

    def on_fenced(self, broker: int) -> None:
        """Count a fencing."""
        self._add("broker", str(broker), (_FENCING,))

    def on_registered(self, broker: int) -> None:
        """Count a registration."""
        self._add("broker", str(broker), (_REGISTRATION,))

    def finish(self) -> None:
        """Write the last hour."""
        self._flush()

    def _add(self, kind: str, name: str, places: Sequence[int], times: int = 1) -> None:
        counters = self._summed.get((kind, name))
        if counters is None:
            counters = self._summed[kind, name] = [0] * 7
        for place in places:
            counters[place] += times

    def _flush(self) -> None:
        counters = self._counters
        for kind, name in sorted(counters):
            self._sink.emit("churn", (kind, name, self._hour, *counters[kind, name]))
        counters.clear()
