"""The broker events in a batch, and the partition changes that each event caused (`ReplicationControlManager`).

The controller writes the records of one decision together. When a broker is fenced, restarts, is unregistered or loses
a log directory, the partition changes come first and the broker's record closes them. When a broker is unfenced or
enters controlled shutdown, its record comes first. A batch may hold several decisions, and one decision of more than
10,000 records is split into several batches. So a change belongs to the nearest event that can have caused it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from metadata_log.history.causes import Trigger
from metadata_log.image.brokers import FENCE, UNFENCE, Broker
from metadata_log.image.topics import NO_LEADER, Partition
from metadata_log.records import metadata as records
from metadata_log.serde import Message

FULL_BATCH: Final = 10_000
"""The number of records in a batch above which the controller splits a decision."""

SESSION_TIMEOUT: Final = "session-timeout"
CONTROLLED_SHUTDOWN: Final = "controlled-shutdown"
FENCED: Final = "broker-fenced"
UNFENCED: Final = "broker-unfenced"
RESTARTED: Final = "broker-restarted"
UNREGISTERED: Final = "broker-unregistered"
DIRECTORY_FAILED: Final = "directory-failed"

Place = Literal["before", "after"]


class BrokerEvent(Struct, frozen=True):
    """One event: its partition changes can only be those before its record, or only those after."""

    trigger: Trigger
    index: int
    changes: Place

    def made(self, old: Partition, new: Partition) -> bool:
        """Whether this event can have caused a partition change."""
        broker = self.trigger.broker
        if self.trigger.code == UNFENCED:
            return old.leader == NO_LEADER and (new.leader != NO_LEADER or old.elr != new.elr)
        return (
            (broker in old.isr and broker not in new.isr)
            or (broker in old.elr and broker not in new.elr)
            or (old.leader == broker != new.leader)
        )


def broker_events(
    found: Sequence[tuple[int, Message]],
    brokers: Mapping[int, Broker],
    lost_leaderships: Callable[[int, int, int], bool],
    last_seen_ms: Mapping[int, int],
    now_ms: int,
    session_timeout_ms: int | None,
) -> list[BrokerEvent]:
    """The events in a batch, in order, from its records about brokers and their indexes.

    `brokers` are the registrations before the batch. `lost_leaderships` returns whether a broker lost a leadership and
    its place in that ISR by a record between two indexes. `last_seen_ms` is the last proof of life of each broker.
    """
    events = []
    shutting_down = {broker.id: -1 for broker in brokers.values() if broker.in_controlled_shutdown}
    for index, found_record in found:
        record = as_registration_change(found_record) if isinstance(found_record, RegistrationChange) else found_record
        match record:
            case records.BrokerRegistrationChangeRecord(broker_id=id_):
                if record.in_controlled_shutdown:
                    shutting_down[id_] = index
                    text = f"broker {id_} requested a controlled shutdown"
                    events.append(BrokerEvent(Trigger(CONTROLLED_SHUTDOWN, id_, text), index, "after"))
                if record.fenced == FENCE:
                    silence = now_ms - last_seen_ms[id_] if id_ in last_seen_ms else None
                    too_soon = session_timeout_ms is not None and silence is not None and silence < session_timeout_ms
                    led = lost_leaderships(id_, shutting_down.get(id_, -1) + 1, index)
                    trigger = fence_trigger(id_, shutting_down=id_ in shutting_down, led=led, too_soon=too_soon)
                    events.append(BrokerEvent(trigger, index, "before"))
                elif record.fenced == UNFENCE:
                    text = f"broker {id_} was unfenced"
                    events.append(BrokerEvent(Trigger(UNFENCED, id_, text), index, "after"))
                elif record.log_dirs:
                    broker = brokers.get(id_)
                    before = broker.directories if broker is not None else ()
                    lost = [str(one) for one in before if one not in record.log_dirs]
                    text = f"broker {id_} lost its log directory {', '.join(lost) or '(not known)'}"
                    events.append(BrokerEvent(Trigger(DIRECTORY_FAILED, id_, text), index, "before"))
            case records.RegisterBrokerRecord(broker_id=id_):
                shutting_down.pop(id_, None)
                text = f"broker {id_} registered as a new process"
                events.append(BrokerEvent(Trigger(RESTARTED, id_, text), index, "before"))
            case records.UnregisterBrokerRecord(broker_id=id_):
                text = f"broker {id_} was unregistered"
                events.append(BrokerEvent(Trigger(UNREGISTERED, id_, text), index, "before"))
            case _:
                pass
    return events


RegistrationChange = records.BrokerRegistrationChangeRecord | records.FenceBrokerRecord | records.UnfenceBrokerRecord
"""The records that change a registration: the last two until Kafka 3.3."""


def as_registration_change(record: RegistrationChange) -> records.BrokerRegistrationChangeRecord:
    """The present form of a record of an older Kafka."""
    if isinstance(record, records.BrokerRegistrationChangeRecord):
        return record
    fenced = FENCE if isinstance(record, records.FenceBrokerRecord) else UNFENCE
    return records.BrokerRegistrationChangeRecord(broker_id=record.id, broker_epoch=record.epoch, fenced=fenced)


def fence_trigger(broker: int, *, shutting_down: bool, led: bool, too_soon: bool) -> Trigger:
    """The cause of a fencing, as far as the log shows.

    A broker in a controlled shutdown gives up its leaderships first, and is fenced when it leads no partition. A fenced
    broker that still leads lost its session. Without leaderships and without an announcement both are possible.
    """
    if led:
        return Trigger(SESSION_TIMEOUT, broker, f"broker {broker} was fenced: its session timed out")
    if shutting_down:
        return Trigger(CONTROLLED_SHUTDOWN, broker, f"broker {broker} was fenced at the end of its controlled shutdown")
    if too_soon:
        text = f"broker {broker} was fenced before its session can have timed out: it shut down, leading nothing"
        return Trigger(CONTROLLED_SHUTDOWN, broker, text)
    text = f"broker {broker} was fenced, leading nothing: its session timed out, or it shut down"
    return Trigger(FENCED, broker, text)


def trigger_of(events: Sequence[BrokerEvent], index: int, old: Partition, new: Partition) -> Trigger | None:
    """The event that caused the change at `index` of the batch; None if no broker event did."""
    for event in events:
        if event.changes == "before" and event.index > index and event.made(old, new):
            return event.trigger
    for event in reversed(events):
        if event.changes == "after" and event.index < index and event.made(old, new):
            return event.trigger
    return None


def trigger_at(events: Sequence[BrokerEvent], index: int) -> Trigger | None:
    """The event of the record at `index` of the batch."""
    return next((event.trigger for event in events if event.index == index), None)
