"""A bare core without random numbers and without timestamps in its log. Histories that differ only in these lead to one
state, so that an exploration counts the state once (the TLA+ models of KRaft have neither times nor random numbers).
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from kraft.invariants.observation import LogBatch
from kraft.quorum.effects import AppendBatch, AppendControl, AppendFetched, TruncateLog
from kraft.quorum.peers import Peers
from kraft.quorum.purgatory import Purgatory
from kraft.sim.nodes.core_member import CoreMember
from kraft.sim.state.fingerprints import FactsOf, Summary, relevant_names
from kraft.sim.world.member_interface import Output


class Canonical(Random):
    """A source of random numbers that always returns the smallest one."""

    def random(self) -> float:
        """Zero."""
        return 0.0

    def getrandbits(self, k: int, /) -> int:
        """Zero."""
        return 0

    def __copy__(self) -> Canonical:
        return self


class CanonicalCore(CoreMember):
    """A core of a quorum with a constant voter set."""

    def start(self, rng: Random, now_ms: int) -> list[Output]:
        """Start the node with the content of its disk; draws nothing from `rng`."""
        return super().start(_STEADY, now_ms)

    def _write(self, effect: AppendBatch | AppendControl | AppendFetched | TruncateLog) -> None:
        match effect:
            case AppendBatch(base_offset, epoch, _, values):
                content = b"\n".join((b"d", b"", *values))
                self.log.append(LogBatch(base_offset, base_offset + len(values), epoch, content))
            case AppendControl(base_offset, epoch, _, records):
                self.log.append(LogBatch(base_offset, base_offset + len(records), epoch, b"c\n"))
            case _:
                super()._write(effect)

    def awaits(self, request_id: int) -> bool:
        """Whether the core still accepts an answer to this request."""
        peers = self.core._quorum.peers
        return peers.is_expected(self._asked.get(request_id, 0), request_id)

    def facts(self) -> Iterator[object]:
        """The facts that determine the future behaviour of the node, those on its disk first."""
        yield self._election
        log = self.log
        yield (tuple(log.batches), tuple(log._durable), tuple(log._unsynced))
        if self._core is not None:
            quorum = self._core._quorum
            yield [_FACTS_OF(getattr(quorum, name)) for name in relevant_names(quorum) if name not in _ELSEWHERE]
            yield sorted(self._flushes.values())
            yield list(self._submitted)


_ELSEWHERE: Final = ("history", "rng", "joining")
"""The voters never change, no random number is drawn, and no replica joins by itself."""
_SUMMARIES: Final[dict[type, Summary]] = {
    # Without the ids of requests, which differ between histories that lead to one state.
    Peers: lambda peers: [
        (peer_id, one.awaiting is not None, one.ready_at_ms) for peer_id, one in sorted(peers._requests.items())
    ],
    # A follower that has sent the same fetch again does not count twice.
    Purgatory: lambda purgatory: sorted({repr(fetch.request) for fetch in purgatory.parked.values()}),
}
_FACTS_OF: Final = FactsOf(_SUMMARIES)
_STEADY = Canonical()
