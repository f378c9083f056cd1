"""Draws the faults of a run and their times: each seed has another mix of faults (swarm testing; Kafka: the scenarios
of `RaftEventSimulationTest`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Final, Protocol

from kraft.sim.world.disk_damage import Damage
from transport.faults import FaultPlan, Faults, Kind

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


class Victims(Protocol):
    """The faults that the nemesis can inject into the nodes."""

    @property
    def node_ids(self) -> tuple[int, ...]:
        """All nodes, including stopped ones."""

    @property
    def voter_ids(self) -> tuple[int, ...]:
        """The voters among them."""

    def running(self) -> list[int]:
        """The running nodes."""

    def leaders(self) -> list[int]:
        """The nodes in the leader state."""

    def crash(self, node_id: int, down_ms: int) -> None:
        """Crash a node and start it again after a while."""

    def crash_within_a_step(self, node_id: int, operations: int, down_ms: int) -> None:
        """Crash a node in the middle of one of its next steps, or of its next start."""

    def resign(self, node_id: int) -> None:
        """Make a leader resign."""

    def shut_down(self, node_id: int, grace_ms: int, down_ms: int) -> None:
        """Shut a node down gracefully, at most for the grace period, and start it again."""

    def pause(self, node_id: int, pause_ms: int) -> None:
        """Pause a node for a while, as in a long garbage collection."""

    def set_clock(self, node_id: int, jump_ms: int, drift: int) -> None:
        """Let a node's clock jump ahead, and run too fast by this many thousandths from now on."""

    def step_clock(self, node_id: int, step_ms: int, drift: int, down_ms: int) -> None:
        """Restart a node after its clock has stepped; it runs too fast by this many thousandths from now on."""

    def reset_connections(self, node_id: int) -> None:
        """Break the connections of a node with pending requests, in both directions."""

    def slow_disk(self, node_id: int, flush_ms: int) -> None:
        """From now on an fsync at this node takes up to this time."""

    def fail_disk(self, node_id: int, operations: int, down_ms: int) -> None:
        """Let one of the next operations on a disk fail, and start the node again a while after it has stopped."""

    def limit_disk(self, node_id: int, free_bytes: int, full_ms: int) -> None:
        """Limit the free space of a node's disk for a while."""

    def fill_directory(self, node_id: int, full_ms: int) -> None:
        """Fill the disk of one of two log directories of a broker for a while."""

    def damage_disk(self, node_id: int, what: Damage, down_ms: int) -> None:
        """Damage a disk permanently, unless the quorum cannot bear the loss."""

    def refuse_connections(self, node_id: int, target: int, refused_ms: int) -> None:
        """Let the address that a node advertises refuse connections of another node for a while."""

    def strand(self) -> None:
        """Cut a leader off. Once the leader has a successor, cut off the successor instead, which then alone has the
        end of its log.
        """

    def slow_down(self, node_id: int, record_us: int) -> None:
        """From now on a node needs this time for every record that it decides on or applies."""

    def corrupt_answers(self, node_id: int, answers: int) -> None:
        """Corrupt the next answers with records to a node, in this number, on their way."""

    def attack(self, node_id: int, frames: int, answers: int, *, is_forging: bool) -> None:
        """Send hostile requests to a node now, and hostile responses to its next requests, in these numbers."""


class Nemesis:
    """Injects faults from the selection of this run at random times."""

    def __init__(
        self,
        rng: Random,
        plan: FaultPlan,
        victims: Victims,
        means_ms: Iterable[int],
        names: Iterable[str],
        *,
        has_all: bool = False,
    ) -> None:
        """`names` are the possible faults, of which the run draws some unless it `has_all`."""
        self.rng = rng
        self.plan = plan
        self.victims = victims
        possible = [name for name in _ALL_STRIKES if name in set(names)]
        drawn = rng.sample(possible, rng.randint(min(2, len(possible)), len(possible)))
        self._names = possible if has_all else drawn
        self._mean_ms = rng.choice(tuple(means_ms))

    def pause_ms(self) -> int:
        """The time until the next fault, in ms."""
        return 1 + int(self.rng.expovariate(1 / self._mean_ms))

    def strike(self) -> str:
        """Inject one fault and return its description. At random, all network cuts heal first: otherwise no node could
        ever reach a majority.
        """
        if self.rng.random() < 0.5:
            self.plan.heal()
        if not self._names:
            return "nothing"
        name = self.rng.choice(self._names)
        return f"{name} {_ALL_STRIKES[name](self)}".rstrip()

    def any_node(self) -> int:
        """Any node, running or not."""
        return self.rng.choice(self.victims.node_ids)

    def important_node(self) -> int:
        """A leader; without a leader a running node; without a running node any node."""
        victims = self.victims
        return self.rng.choice(victims.leaders() or victims.running() or victims.node_ids)

    def down_ms(self) -> int:
        """The downtime of a node, in ms."""
        return self.rng.randint(1, 3000)

    def two_sides(self) -> tuple[list[int], list[int]]:
        """A random division of the nodes into two sets."""
        ids = list(self.victims.node_ids)
        self.rng.shuffle(ids)
        side = self.rng.randrange(len(ids))
        return ids[:side], ids[side:]

    def some_pairs(self) -> list[tuple[int, int]]:
        """Some of the pairs of nodes."""
        ids = sorted(self.victims.node_ids)
        return [(a, b) for a in ids for b in ids if a < b and self.rng.random() < 0.4]


# The network


def _split(nemesis: Nemesis) -> str:
    one, other = nemesis.two_sides()
    nemesis.plan.partition(one, other)
    return f"{one} | {other}"


def _cut_one_way(nemesis: Nemesis) -> str:
    one, other = nemesis.two_sides()
    nemesis.plan.cut(one, other)
    return f"{one} | {other}"


def _cut_requests(nemesis: Nemesis) -> str:
    one, other = nemesis.two_sides()
    nemesis.plan.cut(one, other, (Kind.REQUEST,))
    return f"{one} | {other}"


def _cut_links(nemesis: Nemesis) -> str:
    pairs = nemesis.some_pairs()
    for one, other in pairs:
        nemesis.plan.partition([one], [other])
    return str(pairs)


def _isolate_leader(nemesis: Nemesis) -> str:
    victim = nemesis.important_node()
    nemesis.plan.isolate(victim)
    return str(victim)


def _heal(nemesis: Nemesis) -> str:
    nemesis.plan.heal()
    return ""


def _slow_links(nemesis: Nemesis) -> str:
    pairs = nemesis.some_pairs()
    delay_ms = nemesis.rng.choice(((20, 50), (100, 400), (500, 2500)))
    for one, other in pairs:
        nemesis.plan.slow_down(one, other, delay_ms)
    return f"{pairs} {delay_ms}"


def _reset_connections(nemesis: Nemesis) -> str:
    victim = nemesis.important_node()
    nemesis.victims.reset_connections(victim)
    return str(victim)


def _refuse_connections(nemesis: Nemesis) -> str:
    target = nemesis.important_node()
    others = [one for one in nemesis.victims.node_ids if one != target and nemesis.rng.random() < 0.6]
    refused_ms = nemesis.rng.choice((1, 50, 500, 4000))
    for one in others:
        nemesis.victims.refuse_connections(one, target, refused_ms)
    return f"{others} at {target} for {refused_ms}"


def _strand_leaders(nemesis: Nemesis) -> str:
    nemesis.victims.strand()
    return ""


def _corrupt_answers(nemesis: Nemesis) -> str:
    victim, answers = nemesis.any_node(), nemesis.rng.choice((1, 3, 10, 30))
    nemesis.victims.corrupt_answers(victim, answers)
    return f"{victim} {answers}"


# The processes


def _crash(nemesis: Nemesis) -> str:
    victim = nemesis.any_node()
    nemesis.victims.crash(victim, nemesis.down_ms())
    return str(victim)


def _crash_leader(nemesis: Nemesis) -> str:
    victim = nemesis.important_node()
    nemesis.victims.crash(victim, nemesis.down_ms())
    return str(victim)


def _crash_all(nemesis: Nemesis) -> str:
    for node_id in nemesis.victims.node_ids:
        nemesis.victims.crash(node_id, nemesis.down_ms())
    return ""


def _crash_within_a_step(nemesis: Nemesis) -> str:
    victim = nemesis.any_node()
    nemesis.victims.crash_within_a_step(victim, nemesis.rng.randint(1, 8), nemesis.down_ms())
    return str(victim)


def _restart_quickly(nemesis: Nemesis) -> str:
    """Restart a node before its peers miss it, and crash another one soon after that."""
    first, second = nemesis.rng.sample(list(nemesis.victims.node_ids), 2)
    nemesis.victims.crash(first, nemesis.rng.randint(1, 60))
    nemesis.victims.crash_within_a_step(second, nemesis.rng.randint(5, 300), nemesis.down_ms())
    return f"{first} {second}"


def _resign(nemesis: Nemesis) -> str:
    victim = nemesis.important_node()
    nemesis.victims.resign(victim)
    return str(victim)


def _shut_down(nemesis: Nemesis) -> str:
    victim = nemesis.important_node()
    nemesis.victims.shut_down(victim, 500, nemesis.down_ms())
    return str(victim)


def _pause(nemesis: Nemesis) -> str:
    victim = nemesis.important_node()
    nemesis.victims.pause(victim, nemesis.rng.randint(100, 4000))
    return str(victim)


def _wrong_clock(nemesis: Nemesis) -> str:
    victim = nemesis.any_node()
    jump_ms = nemesis.rng.choice((0, 300, 5000, HOUR_MS, 10 * DAY_MS))
    drift = nemesis.rng.choice((-300, -20, 0, 20, 300))
    nemesis.victims.set_clock(victim, jump_ms, drift)
    return f"{victim} {jump_ms} {drift}"


def _step_clock(nemesis: Nemesis) -> str:
    victim, sign = nemesis.any_node(), nemesis.rng.choice((-1, 1))
    step_ms = sign * nemesis.rng.choice((1000, 30_000, HOUR_MS, 6 * HOUR_MS))
    drift = nemesis.rng.choice((-100, -20, 0, 20, 100))
    nemesis.victims.step_clock(victim, step_ms, drift, nemesis.rng.choice((1, 300, 2000)))
    return f"{victim} {step_ms} {drift}"


# The disks


def _slow_disk(nemesis: Nemesis) -> str:
    victim = nemesis.any_node()
    nemesis.victims.slow_disk(victim, nemesis.rng.choice((1, 20, 500, 4000)))
    return str(victim)


def _disk_error(nemesis: Nemesis) -> str:
    victim = nemesis.any_node()
    nemesis.victims.fail_disk(victim, nemesis.rng.randint(1, 8), nemesis.down_ms())
    return str(victim)


def _disk_full(nemesis: Nemesis) -> str:
    victim = nemesis.any_node()
    nemesis.victims.limit_disk(victim, nemesis.rng.choice((0, 100, 1000, 5000)), nemesis.rng.randint(100, 4000))
    return str(victim)


def _directory_full(nemesis: Nemesis) -> str:
    victim = nemesis.any_node()
    nemesis.victims.fill_directory(victim, nemesis.rng.randint(100, 4000))
    return str(victim)


def _damage(*kinds: Damage) -> Callable[[Nemesis], str]:
    def strike(nemesis: Nemesis) -> str:
        victim, what = nemesis.rng.choice(nemesis.victims.voter_ids), nemesis.rng.choice(kinds)
        nemesis.victims.damage_disk(victim, what, nemesis.down_ms())
        return f"{victim} {what}"

    return strike


# The owner


def _long_decisions(nemesis: Nemesis) -> str:
    victim, record_us = nemesis.important_node(), nemesis.rng.choice((0, 200, 2000, 20_000, 100_000))
    nemesis.victims.slow_down(victim, record_us)
    return f"{victim} {record_us}"


# Hostile messages


def _attack(*, is_forging: bool) -> Callable[[Nemesis], str]:
    def strike(nemesis: Nemesis) -> str:
        victim = nemesis.any_node() if nemesis.rng.random() < 0.5 else nemesis.important_node()
        frames, answers = nemesis.rng.choice((0, 1, 5, 20)), nemesis.rng.choice((0, 1, 3, 10))
        nemesis.victims.attack(victim, frames, answers, is_forging=is_forging)
        return f"{victim} {frames} {answers}"

    return strike


STRIKES: Final[dict[str, Callable[[Nemesis], str]]] = {
    "split": _split,
    "cut-one-way": _cut_one_way,
    "cut-requests": _cut_requests,
    "cut-links": _cut_links,
    "isolate-leader": _isolate_leader,
    "heal": _heal,
    "slow-links": _slow_links,
    "reset-connections": _reset_connections,
    "refused-connections": _refuse_connections,
    "stranded-leaders": _strand_leaders,
    "crash": _crash,
    "crash-leader": _crash_leader,
    "crash-all": _crash_all,
    "crash-within-a-step": _crash_within_a_step,
    "resign": _resign,
    "shut-down": _shut_down,
    "pause": _pause,
    "wrong-clock": _wrong_clock,
    "slow-disk": _slow_disk,
    "disk-error": _disk_error,
    "disk-full": _disk_full,
    "disk-rot": _damage(Damage.ROT, Damage.ASTRAY, Damage.UNREADABLE, Damage.LOST_FILE),
    "disk-wiped": _damage(Damage.WIPED),
    "disk-swapped": _damage(Damage.FOREIGN, Damage.OLD_COPY),
    "absurd-frames": _attack(is_forging=False),
    "long-decisions": _long_decisions,
}
"""The faults of nodes at one moment, by name."""
FORGED_FRAMES: Final = "forged-frames"
"""Under this fault, the only requirements are that no node ends and that every node starts again."""
ONLY_BY_NAME: Final[dict[str, Callable[[Nemesis], str]]] = {FORGED_FRAMES: _attack(is_forging=True)}
"""Faults injected only on request by name, as no quorum keeps its guarantees under them."""
FOCUSED_STRIKES: Final[dict[str, Callable[[Nemesis], str]]] = {
    "quorum-state-damaged": _damage(Damage.ELECTION),
    "batch-epochs-damaged": _damage(Damage.EPOCHS),
    "corrupted-answers": _corrupt_answers,
    "clock-steps": _step_clock,
    "quick-restarts": _restart_quickly,
    "directory-full": _directory_full,
}
"""Faults of focused profiles, and by name. Broad runs never draw them, so that their seeds stay the same."""
MESSAGE_FAULTS: Final = ("drop", "duplicate", "delay", "slow-messages", "reorder")
"""The permanent faults of messages, by name."""
FAULTS: Final = (*MESSAGE_FAULTS, *STRIKES)
"""The names of all faults under which a quorum keeps its guarantees."""
_ALL_STRIKES: Final = {**STRIKES, **FOCUSED_STRIKES, **ONLY_BY_NAME}


def draw_faults(rng: Random, names: Iterable[str] = FAULTS) -> Faults:
    """Draw the permanent faults of the network in one run."""
    chosen = set(names)
    drop = rng.choice((0.0, 0.0, 0.01, 0.1))
    duplicate = rng.choice((0.0, 0.0, 0.05))
    delay_ms = rng.choice(((0, 1), (1, 10), (1, 100)))
    slow = rng.choice((0.0, 0.0, 0.05))
    return Faults(
        drop=drop if "drop" in chosen else 0.0,
        duplicate=duplicate if "duplicate" in chosen else 0.0,
        delay_ms=delay_ms if "delay" in chosen else (1, 1),
        slow=slow if "slow-messages" in chosen else 0.0,
        slow_ms=(100, 3000),
        reorder="reorder" in chosen,
    )


def draw_clock_error_ms(rng: Random, names: Iterable[str] = FAULTS) -> int:
    """The maximal error of a clock at the start of a node, in either direction, in ms."""
    error_ms = rng.choice((0, 5000, 5000, HOUR_MS, 30 * DAY_MS))
    return error_ms if "wrong-clock" in set(names) else 0
