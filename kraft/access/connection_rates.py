"""How fast connections may be made: at all listeners, at each, and from each address (Kafka: `ConnectionQuotas`;
KIP-402, KIP-612).

A listener that is above its rate accepts nothing for a while. A connection of an address that is above its own is held
and then closed, and counts for nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Final

from msgspec import Struct

from kraft.limits import QUOTA_RATES
from kraft.rates import SAMPLES, WINDOW_MS, Average, Rate
from metadata_log.image.quotas import IP, NO_QUOTAS, QuotasImage

BY_ADDRESS: Final = "connection_creation_rate"
"""The quota of an address, in connections a second."""
UNLIMITED: Final = 2**31 - 1


class CreationRates(Struct, frozen=True):
    """The connections that are accepted a second: by all listeners together, and by each."""

    of_all: int = UNLIMITED
    by_listener: Mapping[str, int] = {}


class _AtListener(Struct):
    """The connections at one listener."""

    rate: Rate
    waits: Average
    address_waits: Average


class ConnectionUse(Struct, frozen=True):
    """How fast connections are made at a listener, for metrics."""

    listener: str
    per_second: float
    wait_ms: float
    """For how long the listener has waited on average, of those times when it had to; NaN without any."""
    address_wait_ms: float
    """The same for the addresses whose connections were closed."""


class ConnectionRates:
    """The rates at which connections are made to the listeners of one role of a node.

    Args:
        listeners: The names of the listeners.
        protected: The listener between brokers: where there are others, only its own rate bounds it.
        samples: The number of windows (`quota.window.num`).
        window_ms: The length of a window in ms (`quota.window.size.seconds`), which is also the longest wait.
    """

    def __init__(
        self, listeners: Collection[str], protected: str = "", samples: int = SAMPLES, window_ms: int = WINDOW_MS
    ) -> None:
        self.limits = CreationRates()
        """The rates of the settings."""
        self._windows = samples, window_ms
        self._protected = protected if len(listeners) > 1 else ""
        self._of_all = self._new()
        self._by_listener = {one: _AtListener(self._new(), Average(), Average()) for one in listeners}
        self._quotas = QuotasImage()
        self._by_address: dict[str, float] = {}
        self._of_others: float | None = None
        """The quota of each address without one of its own."""
        self._rates: dict[str, Rate] = {}
        """The rates of addresses with a quota; the one that was used last is at the end."""

    def use(self, quotas: QuotasImage) -> None:
        """Take the quotas of addresses from now on."""
        if quotas is self._quotas:
            return
        self._quotas = quotas
        found = {
            entity[0][1]: bound
            for entity, values in quotas.by_entity.items()
            if entity[0][0] == IP and (bound := values.get(BY_ADDRESS)) is not None
        }
        self._of_others = quotas.by_entity.get(((IP, None),), NO_QUOTAS).get(BY_ADDRESS)
        self._by_address = {plain_address(name): bound for name, bound in found.items() if name is not None}

    def wait_ms(self, listener: str, now_ms: int) -> int:
        """Count a new connection; returns for how long the listener accepts neither this one nor another."""
        at = self._by_listener[listener]
        of_all_ms = 0 if listener == self._protected else self._charge(self._of_all, self.limits.of_all, now_ms)
        bound = self.limits.by_listener.get(listener, self.limits.of_all)
        wait_ms = max(of_all_ms, self._charge(at.rate, bound, now_ms))
        if wait_ms:
            at.waits.note(wait_ms, now_ms)
        return wait_ms

    def hold_ms(self, listener: str, address: str, now_ms: int) -> int:
        """After `wait_ms`, for how long to hold a connection that is then closed, as its address makes too many; 0 to
        accept it.
        """
        address = plain_address(address) if self._of_others is not None or self._by_address else address
        bound = self._by_address.get(address, self._of_others)
        if bound is None:
            return 0
        rate = self._rate(address)
        hold_ms = self._charge(rate, bound, now_ms)
        if hold_ms:
            at = self._by_listener[listener]
            for one in (rate, at.rate, *(() if listener == self._protected else (self._of_all,))):
                one.note(-1, now_ms)
            at.address_waits.note(hold_ms, now_ms)
        return hold_ms

    def uses(self, now_ms: int) -> Iterator[ConnectionUse]:
        """The use of each listener."""
        for name, at in self._by_listener.items():
            waits = at.waits.measure(now_ms), at.address_waits.measure(now_ms)
            yield ConnectionUse(name, at.rate.measure(now_ms)[0], *waits)

    def of_all(self, now_ms: int) -> float:
        """The connections a second at all listeners but the protected one."""
        return self._of_all.measure(now_ms)[0]

    def by_address(self, now_ms: int) -> Iterator[tuple[str, float]]:
        """The connections a second of the addresses with a quota, the latest ones first."""
        return ((address, self._rates[address].measure(now_ms)[0]) for address in reversed(self._rates))

    def _new(self) -> Rate:
        return Rate(*self._windows)

    def _rate(self, address: str) -> Rate:
        rate = self._rates.pop(address, None)
        if rate is None:
            rate = self._new()
            if len(self._rates) >= QUOTA_RATES:
                del self._rates[next(iter(self._rates))]
        self._rates[address] = rate
        return rate

    def _charge(self, rate: Rate, bound: float, now_ms: int) -> int:
        rate.note(1, now_ms)
        return rate.wait_ms(bound, self._windows[1], now_ms)


def plain_address(name: str) -> str:
    """An address in one form of several; any other name as it is."""
    try:
        found = ip_address(name)
    except ValueError:
        return name
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)
