"""The quotas of clients: how much a client has used, and for how long it has to wait (Kafka: `ClientQuotaManager`,
`Rate`, `QuotaUtils`; KIP-13, KIP-55, KIP-219, KIP-546).

A use above the quota is not refused. The answer names the time after which the rate is within the quota again, and the
transport reads nothing more from the connection until then.
"""

from __future__ import annotations

from math import floor
from typing import Final

from kraft.access.client_quotas import Limit, LimitKey, QuotaLimits
from kraft.limits import QUOTA_RATES
from kraft.rates import SAMPLES, WINDOW_MS, Rate
from kraft.wire import WireRequest
from metadata_log.image import MetadataImage

PRODUCED: Final = "producer_byte_rate"
"""The quota of Produce, in bytes a second."""
FETCHED: Final = "consumer_byte_rate"
"""The quota of consumers' Fetch and ShareFetch, in bytes a second."""
LONGEST_WAIT_MS: Final = 2**31 - 1
"""The largest number that the field of an answer holds: a quota may be a fraction of a byte a second, and a request
many megabytes.
"""


class ClientQuotas:
    """The rates at which clients use the broker, and the quotas of the last image.

    The most specific quota of a client counts. Clients for which the same quota counts share it: a quota of a user is
    for all connections of the user together.

    Args:
        samples: The number of windows (`quota.window.num`).
        window_ms: The length of a window in ms (`quota.window.size.seconds`).
    """

    def __init__(self, samples: int = SAMPLES, window_ms: int = WINDOW_MS) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._limits = QuotaLimits()
        self._rates: dict[LimitKey, Rate] = {}
        """By key, the one that was used last at the end."""

    def use(self, image: MetadataImage) -> None:
        """Take the quotas of an image from now on."""
        self._limits.use(image.quotas)

    def bound(self, name: str, asked: WireRequest) -> float | None:
        """The quota of the client of a request, in units a second; None without one."""
        limit = self._limit(name, asked)
        return None if limit is None else limit.bound

    def most_at_once(self, name: str, asked: WireRequest) -> float | None:
        """The largest use that is not certain to exceed the quota; None without a quota."""
        bound = self.bound(name, asked)
        return None if bound is None else bound * (self._samples - 1) * self._window_ms / 1000

    def charge(self, name: str, asked: WireRequest, value: float, now_ms: int) -> int:
        """Count a use; returns for how long the client has to wait, in ms, or 0."""
        limit = self._limit(name, asked)
        if limit is None:
            return 0
        rate = self._rate(limit.key)
        rate.note(value, now_ms)
        measured, over_ms = rate.measure(now_ms)
        if measured <= limit.bound:
            return 0
        return floor(min((measured - limit.bound) / limit.bound * over_ms + 0.5, LONGEST_WAIT_MS))

    def take_back(self, name: str, asked: WireRequest, value: float, now_ms: int) -> None:
        """Undo a `charge`: the client did not get what it was charged for."""
        limit = self._limit(name, asked)
        if limit is not None:
            self._rate(limit.key).note(-value, now_ms)

    def _rate(self, key: LimitKey) -> Rate:
        rate = self._rates.pop(key, None)
        if rate is None:
            rate = Rate(self._samples, self._window_ms)
            if len(self._rates) >= QUOTA_RATES:
                del self._rates[next(iter(self._rates))]
        self._rates[key] = rate
        return rate

    def _limit(self, name: str, asked: WireRequest) -> Limit | None:
        limits = self._limits
        # Most clusters have no quota: then a request pays no call for its client.
        return limits.of(name, asked.principal.name, asked.client_id or "") if limits.quotas.by_entity else None
