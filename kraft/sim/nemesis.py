"""What goes wrong in a run, and when: drawn from the seed, another mix of faults for each (swarm testing; Kafka: the
scenarios of `RaftEventSimulationTest`).
"""

from __future__ import annotations

from random import Random
from typing import Final, Protocol

from transport.faults import FaultPlan, Faults, Kind

ACTIONS: Final = (
    "split",
    "cut-one-way",
    "cut-requests",
    "cut-links",
    "isolate-leader",
    "heal",
    "crash",
    "crash-leader",
    "crash-all",
    "crash-within-a-step",
    "resign",
    "shut-down",
    "pause",
    "slow-disk",
)


class World(Protocol):
    """What the nemesis can do to the nodes."""

    @property
    def node_ids(self) -> tuple[int, ...]:
        """All nodes, down ones too."""

    def running(self) -> list[int]:
        """The nodes that are up."""

    def leaders(self) -> list[int]:
        """The nodes that take themselves for leaders."""

    def crash(self, node_id: int, down_ms: int) -> None:
        """Crash a node and start it again after a while."""

    def crash_within_a_step(self, node_id: int, operations: int, down_ms: int) -> None:
        """Crash a node in the middle of one of its next steps, or of its next start."""

    def resign(self, node_id: int) -> None:
        """Make a leader give up."""

    def shut_down(self, node_id: int, grace_ms: int, down_ms: int) -> None:
        """Stop a node in good order, if it manages within the grace period, and start it again."""

    def pause(self, node_id: int, pause_ms: int) -> None:
        """Let a node do nothing for a while, as in a long garbage collection."""

    def slow_disk(self, node_id: int, flush_ms: int) -> None:
        """From now on an fsync at this node takes up to that long."""


def draw_faults(rng: Random) -> Faults:
    """How bad the network of one run is, between strikes."""
    return Faults(
        drop=rng.choice((0.0, 0.0, 0.01, 0.1)),
        duplicate=rng.choice((0.0, 0.0, 0.05)),
        delay_ms=rng.choice(((0, 1), (1, 10), (1, 100))),
        slow=rng.choice((0.0, 0.0, 0.05)),
        slow_ms=(100, 3000),
        reorder=True,
    )


class Nemesis:
    """Strikes now and then with one of the actions that this run was given."""

    def __init__(self, rng: Random, plan: FaultPlan, world: World, means_ms: tuple[int, ...]) -> None:
        self._rng = rng
        self._plan = plan
        self._world = world
        self._actions = rng.sample(ACTIONS, rng.randint(2, len(ACTIONS)))
        self._mean_ms = rng.choice(means_ms)

    def pause_ms(self) -> int:
        """How long until the next strike."""
        return 1 + int(self._rng.expovariate(1 / self._mean_ms))

    def strike(self) -> str:
        """Do some harm; says what. Now and then what was cut heals first, lest nobody ever reaches a majority."""
        rng, plan, world = self._rng, self._plan, self._world
        if rng.random() < 0.5:
            plan.heal()
        action = rng.choice(self._actions)
        ids = list(world.node_ids)
        victim = rng.choice(world.leaders() or world.running() or ids)
        match action:
            case "split" | "cut-one-way" | "cut-requests":
                rng.shuffle(ids)
                side = rng.randrange(len(ids))
                one, other = ids[:side], ids[side:]
                if action == "split":
                    plan.partition(one, other)
                else:
                    plan.cut(one, other, (Kind.REQUEST,) if action == "cut-requests" else (Kind.REQUEST, Kind.REPLY))
                return f"{action} {one} | {other}"
            case "cut-links":
                pairs = [(a, b) for a in ids for b in ids if a < b and rng.random() < 0.4]
                for a, b in pairs:
                    plan.partition([a], [b])
                return f"{action} {pairs}"
            case "isolate-leader":
                plan.isolate(victim)
            case "heal":
                plan.heal()
                return action
            case "crash":
                victim = rng.choice(ids)
                world.crash(victim, rng.randint(1, 3000))
            case "crash-leader":
                world.crash(victim, rng.randint(1, 3000))
            case "crash-all":
                for node_id in ids:
                    world.crash(node_id, rng.randint(1, 3000))
                return action
            case "crash-within-a-step":
                victim = rng.choice(ids)
                world.crash_within_a_step(victim, rng.randint(1, 8), rng.randint(1, 3000))
            case "resign":
                world.resign(victim)
            case "shut-down":
                world.shut_down(victim, 500, rng.randint(1, 3000))
            case "pause":
                world.pause(victim, rng.randint(100, 4000))
            case "slow-disk":
                victim = rng.choice(ids)
                world.slow_disk(victim, rng.choice((1, 20, 500, 4000)))
        return f"{action} {victim}"
