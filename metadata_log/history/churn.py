"""The number of changes by topic and by broker, for each hour."""

from __future__ import annotations

from typing import Final

from metadata_log.history.causes import NO_LEADER, without
from metadata_log.history.open_rows import Sink, When
from metadata_log.history.partitions import PartitionChanged
from metadata_log.image.configs import ResourceType
from metadata_log.records import metadata as records

_HOUR_MS: Final = 3_600_000
_PARTITION, _LEADER, _SHRINK, _EXPAND, _CONFIG, _FENCING, _REGISTRATION = range(7)


class Churn:
    """Counters of the present hour. An hour is written when the next one begins, so memory does not grow with time."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._hour: int | None = None
        self._counters: dict[tuple[str, str], list[int]] = {}

    def on_time(self, when: When) -> None:
        """Begin a new hour if the time has reached one. A clock that goes back counts into the latest hour."""
        hour = when.timestamp - when.timestamp % _HOUR_MS
        if self._hour is None or hour > self._hour:
            self._flush()
            self._hour = hour

    def on_partition(self, changed: PartitionChanged) -> None:
        """Count one change; creation and deletion of a topic do not count."""
        old, new = changed.old, changed.new
        if old is None or new is None:
            return
        topic = self._of("topic", changed.topic)
        topic[_PARTITION] += 1
        moved = old.leader != new.leader
        for broker in (old.leader, new.leader) if moved else (new.leader,):
            if broker != NO_LEADER:
                counters = self._of("broker", str(broker))
                counters[_PARTITION] += 1
                counters[_LEADER] += moved
        topic[_LEADER] += moved
        if old.isr == new.isr:
            return
        left, joined = without(old.isr, new.isr), without(new.isr, old.isr)
        topic[_SHRINK] += bool(left)
        topic[_EXPAND] += bool(joined)
        for broker in left:
            self._of("broker", str(broker))[_SHRINK] += 1
        for broker in joined:
            self._of("broker", str(broker))[_EXPAND] += 1

    def on_config(self, record: records.ConfigRecord) -> None:
        """Count a change of a topic's or a broker's configuration."""
        if record.resource_type == ResourceType.TOPIC:
            self._of("topic", record.resource_name)[_CONFIG] += 1
        elif record.resource_type == ResourceType.BROKER and record.resource_name:
            self._of("broker", record.resource_name)[_CONFIG] += 1

    def on_fenced(self, broker: int) -> None:
        """Count a fencing."""
        self._of("broker", str(broker))[_FENCING] += 1

    def on_registered(self, broker: int) -> None:
        """Count a registration."""
        self._of("broker", str(broker))[_REGISTRATION] += 1

    def finish(self) -> None:
        """Write the last hour."""
        self._flush()

    def _of(self, kind: str, name: str) -> list[int]:
        found = self._counters.get((kind, name))
        if found is None:
            found = self._counters[kind, name] = [0] * 7
        return found

    def _flush(self) -> None:
        for kind, name in sorted(self._counters):
            self._sink.emit("churn", (kind, name, self._hour, *self._counters[kind, name]))
        self._counters.clear()
