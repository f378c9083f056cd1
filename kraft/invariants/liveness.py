"""Once all faults have ended, nothing waits for ever: what every replica in sync has is committed, as long as there are
enough of them (KIP-966), and a producer gets an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from kraft.invariants.cluster_model import PartitionKey, PartitionModel
from kraft.invariants.violation import InvariantViolated


class _Behind(Struct):
    """A watermark below what the whole ISR has, as it was first seen."""

    since_ms: int
    seen: tuple[int, PartitionModel]
    """The watermark and the partition. With any other, the wait begins anew."""


class Liveness:
    """The waits in a cluster whose faults have all ended, each with its begin. Methods raise `InvariantViolated`.

    Args:
        most_ms: The longest wait, in ms.
    """

    def __init__(self, most_ms: int) -> None:
        self._most_ms = most_ms
        self._behind: dict[PartitionKey, _Behind] = {}
        self._unanswered: dict[int, dict[int, int]] = {}
        """By broker the requests without an answer, and when each was first seen."""

    def watermark(
        self,
        key: PartitionKey,
        name: str,
        partition: PartitionModel,
        high_watermark: int,
        ends: Mapping[int, int | None],
        now_ms: int,
    ) -> None:
        """A look at the leader of a partition with enough replicas in sync. `ends` has the log end of each member of
        the ISR; None for one that is down, or whose log is offline.
        """
        known = [end for end in ends.values() if end is not None]
        if len(known) < len(ends) or high_watermark >= min(known):
            self._behind.pop(key, None)
            return
        seen = (high_watermark, partition)
        behind = self._behind.get(key)
        if behind is None or behind.seen != seen:
            self._behind[key] = _Behind(now_ms, seen)
        elif now_ms - behind.since_ms > self._most_ms:
            raise InvariantViolated(
                f"the high watermark of {name} stands at {high_watermark} for {now_ms - behind.since_ms} ms, though the"
                f" whole ISR has more: {', '.join(f'broker {one} up to {end}' for one, end in ends.items())}"
            )

    def producers(self, broker_id: int, waiting: Iterable[int], now_ms: int) -> None:
        """A look at the ids of a broker's Produce requests that have no answer, and for which it need not wait for an
        ISR.
        """
        before = self._unanswered.get(broker_id, {})
        since = self._unanswered[broker_id] = {one: before.get(one, now_ms) for one in waiting}
        for request_id, since_ms in since.items():
            if now_ms - since_ms > self._most_ms:
                raise InvariantViolated(
                    f"broker {broker_id} has not answered the Produce request {request_id} for {now_ms - since_ms} ms,"
                    " though no partition of it has too small an ISR"
                )
