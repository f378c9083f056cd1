"""A bare core that draws nothing and writes no times, so that histories which differ in nothing else meet in one state
(Kafka has no such thing; the TLA+ models of KRaft know neither times nor draws).
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from kraft.quorum.effects import AppendBatch, AppendControl, AppendFetched, TruncateLog
from kraft.sim.core_member import CoreMember
from kraft.sim.member import LogBatch, Output


class Steady(Random):
    """Draws the least there is, always."""

    def random(self) -> float:
        """Zero."""
        return 0.0

    def getrandbits(self, k: int, /) -> int:
        """Zero."""
        return 0

    def __copy__(self) -> Steady:
        return self


class SteadyCore(CoreMember):
    """A core of a quorum whose voters never change."""

    def start(self, rng: Random, now_ms: int) -> list[Output]:
        """Begin a life with what is on disk; nothing is drawn from `rng`."""
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
        """Whether an answer to this request would be listened to."""
        peers = self.core._quorum.peers
        return peers.is_expected(self._asked.get(request_id, 0), request_id)

    def fork(self) -> SteadyCore:
        """An independent copy."""
        copy = object.__new__(SteadyCore)
        copy.__dict__.update(vars(self))
        copy.log = self.log.fork()
        copy._core = None if self._core is None else self._core.fork()
        copy._flushes = dict(self._flushes)
        copy._asked = dict(self._asked)
        copy._candidates = dict(self._candidates)
        copy._submitted = dict(self._submitted)
        return copy

    def facts(self) -> Iterator[object]:
        """What decides about everything that this node will do: what is on its disk first."""
        yield self._election
        yield self.log.facts()
        if self._core is not None:
            state, _, log, peers, parked, *rest = self._core._quorum.facts()
            yield from (state, log, peers, rest)
            assert isinstance(parked, tuple), parked
            # One that waits in vain, as it was asked again meanwhile, counts no more than the other.
            yield sorted({repr(fetch.request) for fetch in parked})
            yield sorted(self._flushes.values())
            yield list(self._submitted)


_STEADY = Steady()
