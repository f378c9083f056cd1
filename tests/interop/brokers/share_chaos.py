"""Share groups under kills and pauses of real processes: members, leaders of partitions, coordinators. A judge reads
what the members have printed.
"""

from __future__ import annotations

import signal
import time
from functools import partial
from random import Random
from threading import Event
from typing import Final

from msgspec import Struct

from support.interop.real_kafka import eventually
from support.scenarios.coordinator_client import fresh
from support.scenarios.scenario_cluster import Cluster, Topic
from support.scenarios.share_scenarios import Worker, configure, lag, member, produce

WORKERS: Final = 4
PARTITIONS: Final = 6
LIMIT: Final = 10
"""How often a record is delivered at most. Few are killed with their member so often."""
LOCK_MS: Final = 3000
PAUSE_SECONDS: Final = 1.0
SECONDS: Final = 3000


class Verdict(Struct):
    """What the lines of all members say."""

    lost: list[int]
    """Numbers that nobody has tried to accept, and that were not delivered as often as the limit allows."""
    again: list[int]
    """Numbers that were delivered after they were accepted, and counted on."""
    beyond: list[int]
    """Numbers that were delivered more often than the limit allows."""
    deliveries: int = 0
    accepted: int = 0
    exhausted: int = 0
    untold: int = 0
    """Numbers of which a member or a leader died before it told whether they were accepted."""
    faults: int = 0
    seconds: float = 0.0


def judge(workers: list[Worker], count: int, limit: int = LIMIT) -> Verdict:
    """Judge what the members were given and have accepted."""
    most: dict[int, int] = {}
    last: dict[int, tuple[float, int]] = {}
    accepted: dict[int, tuple[float, int]] = {}
    tried: set[int] = set()
    deliveries = 0
    for worker in workers:
        for line in worker.lines:
            at, times = float(line["at"]), int(line["count"])
            if "accepted" in line:
                value = int(line["accepted"])
                accepted[value] = min(accepted.get(value, (at, times)), (at, times))
            elif "tried" in line:
                tried.add(int(line["tried"]))
            else:
                value = int(line["given"])
                deliveries += 1
                most[value] = max(most.get(value, 0), times)
                last[value] = max(last.get(value, (0.0, 0)), (at, times))
    return Verdict(
        lost=[one for one in range(count) if one not in accepted and one not in tried and most.get(one, 0) < limit],
        # A member that was paused prints late what it was given before; that has a lower count.
        again=[one for one, found in last.items() if one in accepted and _is_after(found, accepted[one])],
        beyond=[one for one, times in most.items() if times > limit],
        deliveries=deliveries,
        accepted=len(accepted),
        exhausted=sum(most.get(one, 0) >= limit for one in range(count) if one not in accepted and one not in tried),
        untold=len(tried.difference(accepted)),
    )


def _is_after(found: tuple[float, int], accepted: tuple[float, int]) -> bool:
    return found[0] > accepted[0] and found[1] > accepted[1]


def _wait(seconds: float) -> None:
    """Let a fault last."""
    Event().wait(seconds)


class Chaos:
    """A topic with numbers, a group that takes them, and what happens to both."""

    def __init__(self, cluster: Cluster, count: int, faults: int, seed: int) -> None:
        self._cluster = cluster
        self._count = count
        self._faults = faults
        """After so many faults all numbers are written."""
        self._produced = 0
        self._rng = Random(seed)
        self.faults = 0
        self.topic: Topic = cluster.create_wide("chaos", PARTITIONS)
        self.group = configure(cluster, fresh("g"), share_delivery_count_limit=str(LIMIT))
        self.workers: list[Worker] = []
        self._running: list[Worker] = []

    def run(self) -> Verdict:
        """Produce, consume and break things until every number is done with; then nothing comes again."""
        began = time.monotonic()
        try:
            for _ in range(WORKERS):
                self._employ()
            while not self._is_done():
                self._produce()
                assert time.monotonic() - began < SECONDS, judge(self.workers, self._count)
                self._break_something()
                self._look_after()
        finally:
            for one in self._running:
                one.process.kill()
        # What was accepted stays so: no process that served it is left.
        for broker in self._cluster.order:
            self._cluster.kill(broker)
        self._cluster.restore()
        with member(self._cluster, self.topic, self.group) as last:
            last.gets_nothing()
        verdict = judge(self.workers, self._count)
        verdict.faults, verdict.seconds = self.faults, time.monotonic() - began
        return verdict

    def _produce(self) -> None:
        """Write a portion of the numbers: each fault finds records on their way."""
        first, self._produced = self._produced, min(self._produced + self._count // self._faults + 1, self._count)
        if first < self._produced:
            produce(self._cluster, self.topic, *range(first, self._produced))

    def _employ(self) -> None:
        worker = Worker(self._cluster, self.topic, self.group, "accept")
        self.workers.append(worker)
        self._running.append(worker)

    def _is_done(self) -> bool:
        """Every number is accepted, or may be, and the leaders have nothing more to deliver."""
        return not judge(self.workers, self._count).lost and lag(self._cluster, self.group) == 0

    def _look_after(self) -> None:
        """Replace members that have ended."""
        for one in [each for each in self._running if each.process.popen.poll() is not None]:
            self._running.remove(one)
            self._employ()

    def _break_something(self) -> None:
        """One fault, which ends before the next one."""
        rng, cluster = self._rng, self._cluster
        broker = rng.choice(cluster.order)
        self.faults += 1
        match rng.choice(("kill member", "pause member", "kill broker", "pause broker", "stop broker")):
            case "kill member":
                self._running.pop(rng.randrange(len(self._running))).process.kill()
                self._employ()
            case "pause member":
                worker = rng.choice(self._running)
                worker.process.signal(signal.SIGSTOP)
                _wait(LOCK_MS / 1000 + PAUSE_SECONDS)
                worker.process.signal(signal.SIGCONT)
            case "kill broker":
                cluster.kill(broker)
                self._return(broker)
            case "stop broker":
                cluster.stop(broker)
                self._return(broker)
            case "pause broker":
                cluster.pause(broker)
                _wait(rng.choice((PAUSE_SECONDS, 6 * PAUSE_SECONDS)))
                cluster.resume(broker)
        cluster.wait_until_active(broker)

    def _return(self, broker: int) -> None:
        """Let the others go on without a broker for a while, and start it again."""
        _wait(PAUSE_SECONDS)
        self._cluster.start(broker)
        self._cluster.wait_until_active(broker)
        for name in (self.topic.name, "__share_group_state"):
            eventually(partial(self._is_in_sync, name), f"{name} is in sync", 120)

    def _is_in_sync(self, name: str) -> bool:
        topic = self._cluster.image().topics.get(name)
        return topic is None or all(len(one.isr) == len(one.replicas) for one in topic.partitions)
