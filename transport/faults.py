"""The faults of a bad network: a seeded, pure decision for each message, for `MemoryNetwork` and the simulator.

Kafka: the `MockNetwork` filters of `RaftEventSimulationTest`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from random import Random

from msgspec import Struct


class Kind(StrEnum):
    """The direction of a message: Kafka's own simulation also cuts requests while replies still pass."""

    REQUEST = "request"
    REPLY = "reply"


BOTH = (Kind.REQUEST, Kind.REPLY)


class Faults(Struct, frozen=True, kw_only=True):
    """The fault rates of a network (Kafka: the filters of `MockNetwork`).

    Args:
        drop: The probability that a message is lost, from 0 to 1.
        duplicate: The probability that a message arrives twice, from 0 to 1.
        delay_ms: The least and the most milliseconds that a message takes, both inclusive.
        slow: The probability that a message takes `slow_ms` on top of `delay_ms`, from 0 to 1.
        slow_ms: The additional delay of a slow message in milliseconds, both bounds inclusive.
        reorder: Whether a message may overtake an earlier one between the same two hosts; TCP rules this out.
    """

    drop: float = 0.0
    duplicate: float = 0.0
    delay_ms: tuple[int, int] = (0, 0)
    slow: float = 0.0
    slow_ms: tuple[int, int] = (0, 0)
    reorder: bool = False


NO_FAULTS = Faults()
LOST: tuple[int, ...] = ()


class FaultPlan:
    """Decides whether, when and how often each message between named hosts arrives (Kafka: `MockNetwork`).

    A host name is a `str`, or a node id with the same text.

    Args:
        rng: The source of every random decision; the same seed and calls give the same decisions.
        faults: The fault rates; none by default.
    """

    def __init__(self, rng: Random, faults: Faults = NO_FAULTS) -> None:
        self._rng = rng
        self.faults = faults
        self._cut: dict[tuple[str, str, Kind], None] = {}
        self._isolated: dict[str, None] = {}
        self._slow_ms: dict[tuple[str, str], tuple[int, int]] = {}

    def decide(self, source: object, target: object, kind: Kind) -> tuple[int, ...]:
        """The delay of each arriving copy of one message.

        Args:
            source: The sending host.
            target: The receiving host. A host always reaches itself, without delay.
            kind: Whether the message is a request or a reply.

        Returns:
            The delay of each copy in milliseconds, or `LOST`. Usually there is one copy.
        """
        if source == target:
            return (0,)
        if (self._cut or self._isolated) and self.is_cut(source, target, kind):
            return LOST
        faults = self.faults
        if faults is NO_FAULTS and not self._slow_ms:
            return (0,)
        if faults.drop and self._rng.random() < faults.drop:
            return LOST
        if faults.duplicate and self._rng.random() < faults.duplicate:
            return self._delay_ms(source, target), self._delay_ms(source, target)
        return (self._delay_ms(source, target),)

    def drawn_ms(self, bounds: tuple[int, int]) -> int:
        """A delay between two bounds, both inclusive."""
        low, high = bounds
        return self._rng.randint(low, high) if high > low else low

    def _delay_ms(self, source: object, target: object) -> int:
        faults = self.faults
        delay_ms = self.drawn_ms(faults.delay_ms)
        if faults.slow and self._rng.random() < faults.slow:
            delay_ms += self._rng.randint(*faults.slow_ms)
        if self._slow_ms:
            delay_ms += self._rng.randint(*self._slow_ms.get((str(source), str(target)), (0, 0)))
        return delay_ms

    @property
    def has_cuts(self) -> bool:
        """Whether any message is lost because of a cut or an isolated host."""
        return bool(self._cut or self._isolated)

    def is_cut(self, source: object, target: object, kind: Kind) -> bool:
        """Whether messages of this kind are lost on the way from `source` to `target`."""
        if not self._cut and not self._isolated:
            return False
        a, b = str(source), str(target)
        return a != b and (a in self._isolated or b in self._isolated or (a, b, kind) in self._cut)

    def cut(self, sources: Iterable[object], targets: Iterable[object], kinds: Iterable[Kind] = BOTH) -> None:
        """Lose messages from `sources` to `targets` from now on, in this direction only.

        Args:
            sources: The sending hosts.
            targets: The receiving hosts.
            kinds: The messages that are lost: requests, replies or both.
        """
        targets, kinds = list(targets), list(kinds)
        for source in sources:
            for target in targets:
                for kind in kinds:
                    self._cut[str(source), str(target), kind] = None

    def partition(self, one: Iterable[object], other: Iterable[object]) -> None:
        """Lose every message between two sides, in both directions. Earlier cuts remain.

        Args:
            one: The hosts of one side.
            other: The hosts of the other side.
        """
        one, other = list(one), list(other)
        self.cut(one, other)
        self.cut(other, one)

    def isolate(self, host: object) -> None:
        """Lose every message to and from one host.

        Args:
            host: The host.
        """
        self._isolated[str(host)] = None

    def slow_down(self, one: object, other: object, delay_ms: tuple[int, int]) -> None:
        """Delay every message between two hosts further, in both directions.

        Args:
            one: One host.
            other: The other host.
            delay_ms: The least and the most milliseconds, both inclusive.
        """
        self._slow_ms[str(one), str(other)] = self._slow_ms[str(other), str(one)] = delay_ms

    def heal(self, *hosts: object) -> None:
        """Undo cuts, isolations and slow links.

        Args:
            hosts: The hosts to heal, with all their links; none for all hosts.
        """
        if not hosts:
            self._slow_ms.clear()
            self._cut.clear()
            self._isolated.clear()
            return
        names = [str(host) for host in hosts]
        for name in names:
            self._isolated.pop(name, None)
        self._cut = {cut: None for cut in self._cut if cut[0] not in names and cut[1] not in names}
        self._slow_ms = {link: ms for link, ms in self._slow_ms.items() if not set(link) & set(names)}
