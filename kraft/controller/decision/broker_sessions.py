"""Tracks broker sessions on the active controller (Kafka: `BrokerHeartbeatManager`, `BrokerHeartbeatTracker`).

The sessions are not in the log. A new active controller derives its first sessions from the image.
"""

from __future__ import annotations

from enum import Enum
from heapq import heappop, heappush, heapreplace
from typing import Final

from msgspec import Struct

from kraft.limits import REFUSED_NODES
from metadata_log.image import MetadataImage
from metadata_log.image.persistent_map import in_key_order
from metadata_log.types import NEVER_MS, Uuid

NOTHING: Final = -1
"""No offset: for a broker that has not reported its offset, and for one that is not shutting down."""
FIRST: Final = 2**63 - 1
"""The lowest offset of the active brokers while no broker is active: no broker lags."""
UNHEARD_SHARE: Final = 3
"""The part of a session after which a new incarnation takes the place of one that this controller has never heard."""


class BrokerState(Enum):
    """The state of a broker as seen by the controller (`BrokerControlState`)."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "in controlled shutdown"
    SHUTDOWN_NOW = "may shut down now"

    @property
    def is_fenced(self) -> bool:
        """Whether the broker's registration is fenced in this state."""
        return self in {BrokerState.FENCED, BrokerState.SHUTDOWN_NOW}


class Heard(Struct):
    """The last heartbeat of a broker: its metadata offset, and the offset that its controlled shutdown waits for."""

    fenced: bool
    metadata_offset: int = NOTHING
    controlled_shutdown_offset: int = NOTHING

    @property
    def is_active(self) -> bool:
        """Whether a shutdown of another broker waits for this one."""
        return not self.fenced and self.controlled_shutdown_offset == NOTHING


class BrokerSessions:
    """The sessions of brokers; times are milliseconds.

    A session belongs to an incarnation, which is a broker and its epoch. A heartbeat extends the session on receipt,
    before the controller processes the heartbeat: a busy controller does not fence a broker that reaches it. The caller
    ensures that the incarnation is registered, so that unknown brokers open no sessions.
    """

    __slots__ = ("_by_age", "_contacts", "_heard", "_refused", "_registered_at", "_unheard", "session_timeout_ms")

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._contacts: dict[tuple[int, int], int] = {}
        self._by_age: list[tuple[int, tuple[int, int]]] = []
        """A heap with one entry for each contact. The entry's time is that of the last contact, or earlier."""
        self._unheard: set[tuple[int, int]] = set()
        """The incarnations with a session that no heartbeat has begun, but the claim of this controller."""
        self._heard: dict[int, Heard] = {}
        self._registered_at: dict[int, int] = {}
        self._refused: dict[Uuid, None] = {}
        """The incarnations of which the operator was told that they are too old."""

    # State from the log

    def registered(self, broker_id: int, offset: int) -> None:
        """Note a replayed RegisterBroker record at this offset."""
        self._registered_at[broker_id] = offset

    def registered_at(self, broker_id: int) -> int | None:
        """The offset of a broker's last registration. A broker that has reached this offset may be unfenced."""
        return self._registered_at.get(broker_id)

    def is_first_refusal(self, incarnation: Uuid) -> bool:
        """Whether an incarnation that is too old for the cluster is noted for the first time."""
        is_first = incarnation not in self._refused
        if is_first:
            if len(self._refused) >= REFUSED_NODES:
                del self._refused[next(iter(self._refused))]
            self._refused[incarnation] = None
        return is_first

    # Leadership

    def claim(self, image: MetadataImage, now_ms: int) -> None:
        """Become active: each unfenced broker gets one session timeout for its first heartbeat."""
        self.renounce()
        for broker_id, broker in in_key_order(image.brokers.by_id):
            self._heard[broker_id] = Heard(fenced=broker.fenced)
            if not broker.fenced:
                self.contact(broker_id, broker.epoch, now_ms)
                self._unheard.add((broker_id, broker.epoch))

    def renounce(self) -> None:
        """Discard all sessions."""
        self._contacts.clear()
        self._by_age.clear()
        self._unheard.clear()
        self._heard.clear()

    # Heartbeats

    @property
    def has_contacts(self) -> bool:
        """Whether a session is open."""
        return bool(self._contacts)

    def last_contact_ms(self, broker_id: int, broker_epoch: int) -> int | None:
        """The time of the last heartbeat of an incarnation; None without an open session."""
        return self._contacts.get((broker_id, broker_epoch))

    def contact(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """Note the receipt of a heartbeat from this registered incarnation."""
        key = broker_id, broker_epoch
        if key not in self._contacts:
            heappush(self._by_age, (now_ms, key))
        self._contacts[key] = now_ms
        self._unheard.discard(key)

    def keeps_out(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """Whether this incarnation may still live, so that no other one may register.

        It may within the session timeout of its last heartbeat. One that has sent this controller none, though live
        brokers send several in a session, is taken for dead sooner.
        """
        key = broker_id, broker_epoch
        last_ms = self._contacts.get(key)
        patience_ms = self.session_timeout_ms // UNHEARD_SHARE if key in self._unheard else self.session_timeout_ms
        return last_ms is not None and now_ms - last_ms <= patience_ms

    def touch(self, broker_id: int, *, fenced: bool, metadata_offset: int = NOTHING) -> None:
        """Note the metadata offset of a broker. A fenced broker is no longer in a controlled shutdown."""
        heard = self._heard.setdefault(broker_id, Heard(fenced))
        heard.fenced = fenced
        heard.metadata_offset = metadata_offset
        if fenced:
            heard.controlled_shutdown_offset = NOTHING

    def replayed(self, broker_id: int, *, fenced: bool) -> None:
        """Note a replayed change of a registration on the active controller.

        Kafka keeps a broker's metadata offset only if the record changes the broker's fencing, and the decision has
        usually changed that before. Then the offset is unknown until the next heartbeat
        (`BrokerHeartbeatManager.register`).
        """
        heard = self._heard.get(broker_id)
        is_news = heard is not None and heard.fenced != fenced
        offset = heard.metadata_offset if heard is not None and is_news else NOTHING
        self.touch(broker_id, fenced=fenced, metadata_offset=offset)

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        """Let a broker stop once each active broker has the log up to `offset`; only the first request counts."""
        heard = self._heard[broker_id]
        if heard.controlled_shutdown_offset == NOTHING:
            heard.controlled_shutdown_offset = offset

    def forget(self, broker_id: int) -> None:
        """Discard the session of the former incarnation when a new one registers."""
        self._heard.pop(broker_id, None)

    def state(self, broker_id: int) -> BrokerState:
        """The state of a broker; a broker without a heartbeat is fenced."""
        heard = self._heard.get(broker_id)
        if heard is None:
            return BrokerState.FENCED
        if heard.controlled_shutdown_offset != NOTHING:
            return BrokerState.CONTROLLED_SHUTDOWN
        return BrokerState.FENCED if heard.fenced else BrokerState.UNFENCED

    def may_stop(self, broker_id: int) -> bool:
        """Whether each active broker has replayed the changes of a broker's controlled shutdown."""
        lowest = min((heard.metadata_offset for heard in self._heard.values() if heard.is_active), default=FIRST)
        return self._heard[broker_id].controlled_shutdown_offset <= lowest

    # Expiry

    @property
    def expiry_ms(self) -> int:
        """The earliest time at which a session may expire. A heartbeat in the meantime extends that session."""
        return self._by_age[0][0] + self.session_timeout_ms + 1 if self._by_age else NEVER_MS

    def take_expired(self, now_ms: int) -> tuple[int, int] | None:
        """The incarnation that has been silent longest, if its session has expired; the session is removed."""
        contacts, by_age = self._contacts, self._by_age
        while by_age and now_ms - by_age[0][0] > self.session_timeout_ms:
            noted_ms, key = by_age[0]
            last_ms = contacts[key]
            if last_ms == noted_ms:
                heappop(by_age)
                del contacts[key]
                self._unheard.discard(key)
                return key
            heapreplace(by_age, (last_ms, key))
        return None
