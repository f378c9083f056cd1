"""The quotas of clients: how much a client has used, and for how long it has to wait (Kafka: `ClientQuotaManager`,
`Rate`, `QuotaUtils`; KIP-13, KIP-55, KIP-219, KIP-546).

A use above the quota is not refused. The answer names the time after which the rate is within the quota again, and the
transport reads nothing more from the connection until then.
"""

from __future__ import annotations

from hashlib import blake2b
from math import floor
from typing import Final

from msgspec import Struct

from kraft.limits import QUOTA_RATES
from kraft.rates import SAMPLES, WINDOW_MS, Rate
from kraft.wire import WireRequest
from metadata_log.image import MetadataImage
from metadata_log.image.quotas import NO_QUOTAS, Entity, QuotasImage

PRODUCED: Final = "producer_byte_rate"
"""The quota of Produce, in bytes a second."""
FETCHED: Final = "consumer_byte_rate"
"""The quota of consumers' Fetch and ShareFetch, in bytes a second."""
LONGEST_WAIT_MS: Final = 2**31 - 1
"""The largest number that the field of an answer holds: a quota may be a fraction of a byte a second, and a request
many megabytes.
"""
LONGEST: Final = 64
"""The longest name in a key; a longer one, which clients choose freely, is there by its digest."""
_USER, _CLIENT = "user", "client-id"
_Key = tuple[str, str, str]
"""A quota's name with the user and the client id that share the count; either is empty if it makes no difference."""


class _Limit(Struct, frozen=True):
    """The quota of a client, and the clients with which the client shares the count."""

    key: _Key
    bound: float


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
        self._quotas = QuotasImage()
        self._limits: dict[_Key, _Limit | None] = {}
        """The quotas of clients that have asked since the quotas changed."""
        self._rates: dict[_Key, Rate] = {}
        """By key, the one that was used last at the end."""

    def use(self, image: MetadataImage) -> None:
        """Take the quotas of an image from now on."""
        if image.quotas is not self._quotas:
            self._quotas = image.quotas
            self._limits.clear()

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

    def _rate(self, key: _Key) -> Rate:
        rate = self._rates.pop(key, None)
        if rate is None:
            rate = Rate(self._samples, self._window_ms)
            if len(self._rates) >= QUOTA_RATES:
                del self._rates[next(iter(self._rates))]
        self._rates[key] = rate
        return rate

    def _limit(self, name: str, asked: WireRequest) -> _Limit | None:
        if not self._quotas.by_entity:
            return None
        user, client = asked.principal.name, asked.client_id or ""
        key = name, _short(user), _short(client)
        if key not in self._limits:
            if len(self._limits) >= QUOTA_RATES:
                self._limits.clear()
            self._limits[key] = self._find(name, user, client)
        return self._limits[key]

    def _find(self, name: str, user: str, client: str) -> _Limit | None:
        """The most specific quota and its key, which all clients share that have it (`DefaultQuotaCallback`)."""
        by_user, by_client = _short(user), _short(client)
        both, of_user, of_client = (name, by_user, by_client), (name, by_user, ""), (name, "", by_client)
        tried: tuple[tuple[Entity, _Key], ...] = (
            (((_CLIENT, client), (_USER, user)), both),
            (((_CLIENT, None), (_USER, user)), both),
            (((_USER, user),), of_user),
            (((_CLIENT, client), (_USER, None)), both),
            (((_CLIENT, None), (_USER, None)), both),
            (((_USER, None),), of_user),
            (((_CLIENT, client),), of_client),
            (((_CLIENT, None),), of_client),
        )
        for entity, key in tried:
            bound = self._quotas.by_entity.get(entity, NO_QUOTAS).get(name)
            if bound is not None and bound > 0:
                return _Limit(key, bound)
        return None


def _short(name: str) -> str:
    """A name as a key that takes little memory, and that no other name has."""
    if len(name) <= LONGEST:
        return name
    return "\0" + blake2b(name.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()
