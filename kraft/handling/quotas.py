"""The quotas of clients: how much a client has used, and for how long it has to wait (Kafka: `ClientQuotaManager`,
`Rate`, `QuotaUtils`; KIP-13, KIP-55, KIP-219, KIP-546).

A use above the quota is not refused. The answer names the time after which the rate is within the quota again, and the
transport reads nothing more from the connection until then.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import nan
from typing import Final

from msgspec import Struct

from kraft.access.client_quotas import Limit, LimitKey, QuotaLimits
from kraft.limits import QUOTA_RATES
from kraft.rates import SAMPLES, WINDOW_MS, Average, Rate
from kraft.wire import WireRequest
from metadata_log.image import MetadataImage

PRODUCED: Final = "producer_byte_rate"
"""The quota of Produce, in bytes a second."""
FETCHED: Final = "consumer_byte_rate"
"""The quota of consumers' Fetch and ShareFetch, in bytes a second."""
REQUEST_TIME: Final = "request_percentage"
"""The quota of the time that the loop works for requests, in percent (KIP-124)."""
LONGEST_WAIT_MS: Final = 2**31 - 1
"""The largest number that the field of an answer holds: a quota may be a fraction of a byte a second, and a request
many megabytes.
"""


class ClientUse(Struct, frozen=True):
    """How much clients use that share a quota, for metrics; either name is empty if it makes no difference."""

    quota: str
    user: str
    client: str
    per_second: float
    wait_ms: float
    """How long they have had to wait on average, of those times when they had to; NaN without any."""


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
        self._waits: dict[LimitKey, Average] = {}
        """The waits of those of them that had to wait."""

    def use(self, image: MetadataImage) -> None:
        """Take the quotas of an image from now on."""
        self._limits.use(image.quotas)

    @property
    def windows(self) -> tuple[int, int]:
        """The number of windows, and their length in ms."""
        return self._samples, self._window_ms

    def bounds_fetch(self, asked: WireRequest) -> bool:
        """Whether a consumer has a quota, of bytes or of time, above which it gets no data."""
        return self._limit(FETCHED, asked) is not None or self._limit(REQUEST_TIME, asked) is not None

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
        return self._charge(self._limit(name, asked), value, now_ms, LONGEST_WAIT_MS)

    def charge_time(self, asked: WireRequest, percent: float, now_ms: int, beside_ms: int) -> int:
        """Count the time of a request, as `charge`; the wait is one window at most (`maxThrottleTimeMs`).

        The wait counts in the metrics, unless the client has to wait longer for another reason, `beside_ms`.
        """
        return self._charge(self._limit(REQUEST_TIME, asked), percent, now_ms, self._window_ms, beside_ms)

    def note_time(self, asked: WireRequest, percent: float, now_ms: int) -> None:
        """Count time of a request for which nobody waits (`recordNoThrottle`)."""
        limit = self._limit(REQUEST_TIME, asked)
        if limit is not None:
            self._rate(limit.key).note(percent, now_ms)

    def _charge(self, limit: Limit | None, value: float, now_ms: int, longest_ms: int, beside_ms: int = 0) -> int:
        if limit is None:
            return 0
        rate = self._rate(limit.key)
        rate.note(value, now_ms)
        wait_ms = rate.wait_ms(limit.bound, longest_ms, now_ms)
        if wait_ms >= max(1, beside_ms):
            self._waits.setdefault(limit.key, Average()).note(wait_ms, now_ms)
        return wait_ms

    def take_back(self, name: str, asked: WireRequest, value: float, now_ms: int) -> None:
        """Undo a `charge`: the client did not get what it was charged for."""
        limit = self._limit(name, asked)
        if limit is not None:
            self._rate(limit.key).note(-value, now_ms)

    def uses(self, most: int, now_ms: int) -> Iterator[ClientUse]:
        """The uses that are counted, at most so many, and of these the ones that are the shortest time ago."""
        for key in islice(reversed(self._rates), most):
            waits = self._waits.get(key)
            wait_ms = nan if waits is None else waits.measure(now_ms)
            yield ClientUse(*key, self._rates[key].measure(now_ms)[0], wait_ms)

    def _rate(self, key: LimitKey) -> Rate:
        rate = self._rates.pop(key, None)
        if rate is None:
            rate = Rate(self._samples, self._window_ms)
            if len(self._rates) >= QUOTA_RATES:
                oldest = next(iter(self._rates))
                del self._rates[oldest]
                self._waits.pop(oldest, None)
        self._rates[key] = rate
        return rate

    def _limit(self, name: str, asked: WireRequest) -> Limit | None:
        limits = self._limits
        # Most clusters have no quota: then a request pays no call for its client.
        return limits.of(name, asked.principal.name, asked.client_id or "") if limits.quotas.by_entity else None
