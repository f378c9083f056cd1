"""The past states of brokers: registration, fencing, controlled shutdown, directories (Kafka: `ClusterControlManager`).

The view `fencing` is derived from them: when and why a broker was fenced, and its losses.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from metadata_log.history.causes import CauseRow, Trigger, without
from metadata_log.history.events import (
    CONTROLLED_SHUTDOWN,
    DIRECTORY_FAILED,
    FENCED,
    RESTARTED,
    SESSION_TIMEOUT,
    UNFENCED,
    UNREGISTERED,
)
from metadata_log.history.open_rows import OpenRows, Sink, When, cause_of_snapshot
from metadata_log.history.partition_rows import GONE, Cell, Shape
from metadata_log.history.values import broker_values
from metadata_log.image.brokers import (
    Broker,
    BrokersImage,
    replay_register_broker,
    replay_registration_change,
    replay_unregister_broker,
)
from metadata_log.records import metadata as records

REGISTERED: Final = "broker-registered"
REFRESHED: Final = "broker-registered-again"
CORDONED: Final = "directories-cordoned"
SECOND_FENCE: Final = (
    "; its second fence record at offset {offset}, when its session ended, shows that it had shut down before that"
)


class Brokers:
    """All registrations, and the open rows of `broker_history`."""

    def __init__(self, sink: Sink) -> None:
        self.image = BrokersImage()
        self.last_seen_ms: dict[int, int] = {}
        self._rows = OpenRows("broker_history", sink)
        self.fencing = Fencing(sink)

    def on_register(self, record: records.RegisterBrokerRecord, offset: int, when: When, *, in_snapshot: bool) -> None:
        """A new process of a broker, or a repeated registration of the same one with other properties."""
        old = self.image.by_id.get(record.broker_id)
        self.image = replay_register_broker(self.image, record)
        new = self.image.by_id[record.broker_id]
        if in_snapshot:
            cause = cause_of_snapshot()
        else:
            self.last_seen_ms[new.id] = when.timestamp
            code, text = _registration(old, new)
            cause = (code, "RegisterBrokerRecord", offset, new.id, text)
        self._put(old, new, when, cause)

    def on_registration_change(
        self,
        record: records.BrokerRegistrationChangeRecord,
        name: str,
        offset: int,
        when: When,
        trigger: Trigger | None,
    ) -> None:
        """Fencing, unfencing, controlled shutdown, or other directories; `name` is the record type in the log."""
        old = self.image.by_id[record.broker_id]
        self.image = replay_registration_change(self.image, record)
        new = self.image.by_id[record.broker_id]
        if new.fenced and old.fenced and record.fenced:
            self._on_second_fence(new, offset)
        elif not new.fenced:
            self.last_seen_ms[new.id] = when.timestamp
        if new != old:
            code, text = _change(old, new, trigger)
            self._put(old, new, when, (code, name, offset, new.id, text))

    def on_unregister(self, record: records.UnregisterBrokerRecord, when: When) -> None:
        """Remove a broker."""
        self.image = replay_unregister_broker(self.image, record)
        self.last_seen_ms.pop(record.broker_id, None)
        self._rows.end(record.broker_id, when, UNREGISTERED)
        self.fencing.on_unregistered(record.broker_id, when)

    def lose_sight(self, when: When) -> None:
        """End every row: the following history is unknown."""
        self.image = BrokersImage()
        self.last_seen_ms.clear()
        self._rows.lose_sight(when)
        self.fencing.lose_sight(when)

    def finish(self, now: When) -> None:
        """Write the open rows."""
        self._rows.finish(now)
        self.fencing.rows.finish(now)

    def _put(self, old: Broker | None, new: Broker, when: When, cause: CauseRow) -> None:
        self._rows.begin(new.id, broker_values(new), when, cause)
        self.fencing.on_broker(old, new, when, cause)

    def _on_second_fence(self, broker: Broker, offset: int) -> None:
        for rows in (self._rows, self.fencing.rows):
            row = rows.get(broker.id)
            if row is not None and row.cause[0] == FENCED:
                text = row.cause[4] + SECOND_FENCE.format(offset=offset)
                rows.replace(broker.id, replace(row, cause=(CONTROLLED_SHUTDOWN, *row.cause[1:4], text)))


def _registration(old: Broker | None, new: Broker) -> tuple[str, str]:
    if old is None:
        return REGISTERED, f"broker {new.id} registered for the first time, or after it was unregistered"
    if old.incarnation_id == new.incarnation_id:
        return REFRESHED, f"broker {new.id} registered again, with other facts about itself"
    was = "fenced" if old.fenced else "not yet fenced"
    return RESTARTED, f"broker {new.id} registered as a new process; the former one was {was}"


def _change(old: Broker, new: Broker, trigger: Trigger | None) -> tuple[str, str]:
    if new.fenced and not old.fenced:
        return (trigger.code, trigger.text) if trigger is not None else (FENCED, f"broker {new.id} was fenced")
    if old.fenced and not new.fenced:
        return UNFENCED, f"broker {new.id} was unfenced: it had caught up with the metadata log"
    if new.in_controlled_shutdown and not old.in_controlled_shutdown:
        return CONTROLLED_SHUTDOWN, f"broker {new.id} requested a controlled shutdown"
    if new.directories != old.directories:
        lost = [str(one) for one in old.directories if one not in new.directories]
        return DIRECTORY_FAILED, f"broker {new.id} lost its log directory {', '.join(lost)}"
    count = len(new.cordoned_directories or ())
    return CORDONED, f"broker {new.id} reported {count or 'no'} cordoned log directories"


class Fencing:
    """The intervals in which brokers were fenced: the rows of `fencing`."""

    def __init__(self, sink: Sink) -> None:
        self.rows = OpenRows("fencing", sink)
        self._moved: dict[int, int] = {}
        self._left: dict[int, int] = {}

    def judge(self, old: Shape | None, new: Shape, *, is_raised: bool) -> tuple[int | None, tuple[int, ...]] | None:
        """The leader that leads no more, and the brokers that leave the ISR; None if there is neither."""
        if old is None or new is GONE:
            return None
        leader = None if old.leader == new.leader else old.leader
        left = without(old.partition.isr, new.partition.isr)
        return None if leader is None and not left else (leader, left)

    def follow(self, lost: tuple[int | None, tuple[int, ...]], _: bytes, old: Cell | None, new: Cell) -> None:
        """Count the broker's losses in events that end with its fencing."""
        reason = new[4]
        if reason.code not in _COUNTED:
            return
        broker = reason.broker
        assert broker is not None
        if lost[0] == broker:
            self._moved[broker] = self._moved.get(broker, 0) + 1
        if broker in lost[1]:
            self._left[broker] = self._left.get(broker, 0) + 1

    def on_broker(self, old: Broker | None, new: Broker, when: When, cause: CauseRow) -> None:
        """Begin or end an interval."""
        if new.fenced and (old is None or not old.fenced):
            self.rows.begin(
                new.id, (new.id, new.epoch, self._moved.pop(new.id, 0), self._left.pop(new.id, 0)), when, cause
            )
        elif not new.fenced and old is not None and old.fenced:
            self.rows.end(new.id, when, UNFENCED)
            self._moved.pop(new.id, None)
            self._left.pop(new.id, None)

    def on_unregistered(self, broker: int, when: When) -> None:
        """End the interval of an unregistered broker."""
        self.rows.end(broker, when, UNREGISTERED)

    def lose_sight(self, when: When) -> None:
        """End every row: the following history is unknown."""
        self.rows.lose_sight(when)
        self._moved.clear()
        self._left.clear()


_COUNTED: Final = frozenset({SESSION_TIMEOUT, CONTROLLED_SHUTDOWN, FENCED, RESTARTED, UNREGISTERED, DIRECTORY_FAILED})
