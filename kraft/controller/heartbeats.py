"""Which brokers are alive, as far as the active controller has heard (Kafka: `BrokerHeartbeatManager`,
`BrokerHeartbeatTracker`). None of it is in the log: a new active controller begins with what the image says.
"""

from __future__ import annotations

from enum import Enum
from heapq import heappop, heappush, heapreplace
from typing import Final

from msgspec import Struct

from metadata_log.image import MetadataImage
from metadata_log.image.persistent_map import in_key_order
from metadata_log.types import NEVER_MS

NOTHING: Final = -1
"""No offset: of a broker that has not told how far it is, and of one that is not shutting down."""
FIRST: Final = 2**63 - 1
"""Nobody is behind: where no broker is active the slowest of them has everything."""


class BrokerState(Enum):
    """What a broker is to the controller (`BrokerControlState`)."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "in controlled shutdown"
    SHUTDOWN_NOW = "may shut down now"

    @property
    def is_fenced(self) -> bool:
        """Whether the broker's registration is fenced in this state."""
        return self in {BrokerState.FENCED, BrokerState.SHUTDOWN_NOW}


class Heard(Struct):
    """What was last heard of a broker: how much of the metadata log it has, and since when it wants to stop."""

    fenced: bool
    metadata_offset: int = NOTHING
    controlled_shutdown_offset: int = NOTHING

    @property
    def is_active(self) -> bool:
        """Whether others wait for it before a shutdown is granted."""
        return not self.fenced and self.controlled_shutdown_offset == NOTHING


class BrokerSessions:
    """The sessions of brokers; times are milliseconds.

    A session belongs to an incarnation, which is a broker and its epoch. Contact is noted when a heartbeat is received,
    before it is dealt with: a busy controller does not lose brokers that do reach it. The caller has checked that the
    incarnation is registered, so that strangers open no sessions.
    """

    __slots__ = ("_by_age", "_contacts", "_heard", "_registered_at", "session_timeout_ms")

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._contacts: dict[tuple[int, int], int] = {}
        self._by_age: list[tuple[int, tuple[int, int]]] = []
        """A heap with one entry for each contact. Its time may be older than the last contact, and never younger."""
        self._heard: dict[int, Heard] = {}
        self._registered_at: dict[int, int] = {}

    # What the log says

    def registered(self, broker_id: int, offset: int) -> None:
        """A RegisterBroker record was replayed at this offset."""
        self._registered_at[broker_id] = offset

    def registered_at(self, broker_id: int) -> int | None:
        """The offset of a broker's last registration: a broker that has it may be unfenced."""
        return self._registered_at.get(broker_id)

    # Leadership

    def claim(self, image: MetadataImage, now_ms: int) -> None:
        """This controller becomes active: every broker that is not fenced has a whole session to show up."""
        self.renounce()
        for broker_id, broker in in_key_order(image.brokers.by_id):
            self._heard[broker_id] = Heard(fenced=broker.fenced)
            if not broker.fenced:
                self.contact(broker_id, broker.epoch, now_ms)

    def renounce(self) -> None:
        """Forget what was heard."""
        self._contacts.clear()
        self._by_age.clear()
        self._heard.clear()

    # Heartbeats

    @property
    def has_contacts(self) -> bool:
        """Whether any session is open."""
        return bool(self._contacts)

    def contact(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """A heartbeat of this incarnation, which is registered, was received."""
        key = broker_id, broker_epoch
        if key not in self._contacts:
            heappush(self._by_age, (now_ms, key))
        self._contacts[key] = now_ms

    def is_valid(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """Whether this incarnation was heard of within the session timeout."""
        last_ms = self._contacts.get((broker_id, broker_epoch))
        return last_ms is not None and now_ms - last_ms <= self.session_timeout_ms

    def touch(self, broker_id: int, *, fenced: bool, metadata_offset: int = NOTHING) -> None:
        """Note how far a broker is; a fenced one is no longer in a controlled shutdown."""
        heard = self._heard.setdefault(broker_id, Heard(fenced))
        heard.fenced = fenced
        heard.metadata_offset = metadata_offset
        if fenced:
            heard.controlled_shutdown_offset = NOTHING

    def replayed(self, broker_id: int, *, fenced: bool) -> None:
        """A change of a registration was replayed on the active controller.

        Kafka keeps how far a broker is only if the record tells it something new, which the decision seldom left to
        it: until the next heartbeat nobody knows (`BrokerHeartbeatManager.register`).
        """
        heard = self._heard.get(broker_id)
        is_news = heard is not None and heard.fenced != fenced
        offset = heard.metadata_offset if heard is not None and is_news else NOTHING
        self.touch(broker_id, fenced=fenced, metadata_offset=offset)

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        """A broker is to stop once all active ones have the log up to `offset`; only its first wish counts."""
        heard = self._heard[broker_id]
        if heard.controlled_shutdown_offset == NOTHING:
            heard.controlled_shutdown_offset = offset

    def forget(self, broker_id: int) -> None:
        """A new incarnation registers: nothing that was heard of the former one holds."""
        self._heard.pop(broker_id, None)

    def state(self, broker_id: int) -> BrokerState:
        """What a broker is; one that was never heard of is fenced."""
        heard = self._heard.get(broker_id)
        if heard is None:
            return BrokerState.FENCED
        if heard.controlled_shutdown_offset != NOTHING:
            return BrokerState.CONTROLLED_SHUTDOWN
        return BrokerState.FENCED if heard.fenced else BrokerState.UNFENCED

    def may_stop(self, broker_id: int) -> bool:
        """Whether every active broker has learnt what a broker's controlled shutdown changed."""
        lowest = min((heard.metadata_offset for heard in self._heard.values() if heard.is_active), default=FIRST)
        return self._heard[broker_id].controlled_shutdown_offset <= lowest

    # Silence

    @property
    def expiry_ms(self) -> int:
        """When the next session may be over: no earlier, and later if a heartbeat of that broker came meanwhile."""
        return self._by_age[0][0] + self.session_timeout_ms + 1 if self._by_age else NEVER_MS

    def take_expired(self, now_ms: int) -> tuple[int, int] | None:
        """The incarnation that has been silent for longest, if that is more than a session; its session is over."""
        contacts, by_age = self._contacts, self._by_age
        while by_age and now_ms - by_age[0][0] > self.session_timeout_ms:
            noted_ms, key = by_age[0]
            last_ms = contacts[key]
            if last_ms == noted_ms:
                heappop(by_age)
                del contacts[key]
                return key
            heapreplace(by_age, (last_ms, key))
        return None
