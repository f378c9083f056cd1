"""The quota of a client for created and deleted partitions (Kafka: `ControllerMutationQuotaManager`; KIP-599)."""

from __future__ import annotations

from typing import Final

from kraft.access.caller import Caller
from kraft.access.client_quotas import Limit, LimitKey, QuotaLimits
from kraft.access.errors import ApiError
from kraft.limits import QUOTA_RATES
from kraft.rates import SAMPLES, WINDOW_MS, TokenBucket
from metadata_log.image.quotas import QuotasImage
from transport.protocol.errors import Error

MUTATIONS: Final = "controller_mutation_rate"
"""The quota, in partitions a second."""
_LONGEST_MS: Final = 2**31 - 1


class Mutations:
    """The quota of one request. Without one everything is allowed."""

    def __init__(self, limit: Limit | None, bucket: TokenBucket | None, now_ms: int, *, is_strict: bool) -> None:
        self._limit = limit
        self._bucket = bucket
        self._now_ms = now_ms
        self._is_strict = is_strict
        self.throttle_ms = 0
        """For how long the client has to wait, in ms."""

    def charge(self, partitions: int) -> None:
        """Count partitions. Raises `ApiError` for a strict request of a client that owes already; one that does not may
        create any number, and owes it then. Others are only told to wait.
        """
        limit, bucket = self._limit, self._bucket
        if limit is None or bucket is None:
            return
        if self._is_strict:
            self._look(limit, bucket)
            if self.throttle_ms:
                raise ApiError(Error.THROTTLING_QUOTA_EXCEEDED)
        bucket.take(partitions, limit.bound, self._now_ms)
        if not self._is_strict:
            self._look(limit, bucket)

    def _look(self, limit: Limit, bucket: TokenBucket) -> None:
        left = bucket.left(limit.bound, self._now_ms)
        if left < 0:
            self.throttle_ms = max(1, min(_LONGEST_MS, round(-left * 1000 / limit.bound)))


class MutationQuotas:
    """The quotas of an active controller, and what its clients have used. Another controller begins anew.

    Args:
        samples: The number of windows (`controller.quota.window.num`).
        window_ms: The length of a window in ms (`controller.quota.window.size.seconds`).
    """

    def __init__(self, samples: int = SAMPLES, window_ms: int = WINDOW_MS) -> None:
        self._seconds = samples * window_ms / 1000
        self._limits = QuotaLimits()
        self._buckets: dict[LimitKey, TokenBucket] = {}
        """By key, the one that was used last at the end."""

    def of(self, caller: Caller, quotas: QuotasImage, now_ms: int, *, is_strict: bool) -> Mutations:
        """The quota for one request.

        Args:
            caller: The client.
            quotas: The committed quotas.
            now_ms: The time in ms since 1970.
            is_strict: Whether the version of the request knows THROTTLING_QUOTA_EXCEEDED.
        """
        self._limits.use(quotas)
        limit = self._limits.of(MUTATIONS, caller.name, caller.client_id)
        bucket = None if limit is None else self._bucket(limit.key)
        return Mutations(limit, bucket, now_ms, is_strict=is_strict)

    def _bucket(self, key: LimitKey) -> TokenBucket:
        bucket = self._buckets.pop(key, None)
        if bucket is None:
            bucket = TokenBucket(self._seconds)
            if len(self._buckets) >= QUOTA_RATES:
                del self._buckets[next(iter(self._buckets))]
        self._buckets[key] = bucket
        return bucket
