"""Clients attack three running brokers: no node ends, no leadership is lost, memory is bounded, writes go on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import Final, Self

import pytest
from msgspec import Struct
from msgspec import json as msgspec_json

from support import TESTS
from support.hostile.broker_attacks import BROKER_ATTACKS, BrokerTarget
from support.hostile.coordinator_attacks import COORDINATOR_ATTACKS
from support.interop.kafka_or_skip import found_or_skipped
from support.scenarios.scenario_client import batch
from support.scenarios.scenario_cluster import MAKES, Cluster, Topic, scenario_cluster
from transport.protocol.errors import Error

ATTACKS: Final = dict.fromkeys(BROKER_ATTACKS, "support.hostile.broker_attacks") | dict.fromkeys(
    COORDINATOR_ATTACKS, "support.hostile.coordinator_attacks"
)
"""The program of each attack, a module."""
SLICE_SECONDS: Final = 1.0
SLICE_SCALE: Final = 0.05
SOAK_SECONDS: Final = 10.0
QUIET_WRITES: Final = 20
MEMORY_MIB: Final = dict.fromkeys(BROKER_ATTACKS, 400) | dict.fromkeys(COORDINATOR_ATTACKS, 900)
"""The most that a broker may have resident during an attack. At rest it has some 60; groups may take 512 by their own
count.
"""
SLICE: Final = (
    *BROKER_ATTACKS,
    *("offset_floods", "consumer_floods", "odd_requests"),
    *(
        pytest.param(one, marks=pytest.mark.soak)
        for one in COORDINATOR_ATTACKS
        if one not in {"offset_floods", "consumer_floods", "odd_requests"}
    ),
)
LONGEST_TURN_MS: Final = {SLICE_SCALE: 500, 1.0: 150}
"""Turns are bounded by 50 ms of work. The wall says more where the machine is busy: most of all beside other tests."""
TIMES_THE_JVM: Final = 3
SPARE_SECONDS: Final = 0.3


class Writes:
    """A legitimate producer: numbers with acks=all, one after the other, each timed; which offsets they got."""

    def __init__(self, cluster: Cluster, topic: Topic) -> None:
        self._cluster = cluster
        self._topic = topic
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged: dict[int, bytes] = {}
        self.times: list[tuple[float, float]] = []
        """When each write began, on the monotonic clock, and how long it took, in seconds."""
        self.refused: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the producer did not come back"

    def longest_since(self, moment: float) -> float:
        """The longest time in seconds that a write took which ended after a moment."""
        return max((took for began, took in self.times if began + took >= moment), default=float("inf"))

    def _run(self) -> None:
        number = 0
        leader = self._topic.replicas[0]
        while not self._stopped.is_set():
            value = b"%d" % number
            began = time.monotonic()
            try:
                answer = self._cluster.produce(leader, self._topic, batch(value))
            except (OSError, AssertionError) as gone:
                self.refused.append(repr(gone))
                continue
            self.times.append((began, time.monotonic() - began))
            if answer.error_code == Error.NONE:
                self.acknowledged[answer.base_offset] = value
                number += 1
            else:
                self.refused.append(Error.of(answer.error_code).name)
            self._stopped.wait(0.005)


class Seen(Struct):
    """The effects of an attack on brokers."""

    did: dict[str, int]
    quiet: float
    """The longest write before the attack, in seconds."""
    longest: float
    """The longest write during the attack."""
    peaks: dict[int, int]
    """The most MiB that each broker had resident."""
    turns: list[int]
    """The turns of more than 50 ms that the brokers reported, in ms."""


class Attacked:
    """A cluster for all attacks, and a new one after a failure, so that one failure does not hide the next attack."""

    def __init__(self, make: str, new_directory: Callable[[], Path]) -> None:
        self._make = make
        self._new_directory = new_directory
        self._stack = ExitStack()
        self._current: Cluster | None = None

    def current(self) -> Cluster:
        """Three brokers that serve."""
        if self._current is None:
            kafka = found_or_skipped() if self._make == "jvm" else None
            opened = scenario_cluster(self._new_directory(), MAKES[self._make], kafka)
            self._current = self._stack.enter_context(opened)
        return self._current

    def end(self) -> None:
        """End the cluster."""
        self._stack.close()
        self._current = None


def run_attack(name: str, target: BrokerTarget) -> dict[str, int]:
    """Run the attack in a process of its own to its end; what it did."""
    done = subprocess.run(
        [sys.executable, "-m", ATTACKS[name], name, msgspec_json.encode(target).decode()],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=target.seconds + 300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    did: dict[str, int] = json.loads(done.stdout)
    assert sum(did.values()) > 0, "the attack did nothing"
    return did


def attack(cluster: Cluster, name: str, *, seconds: float, scale: float) -> Seen:
    """Attack while a legitimate producer writes; then look at what was promised of every make."""
    seed = int(os.environ.get("ATTACK_SEED") or SystemRandom().getrandbits(32))
    print(f"ATTACK_SEED={seed}")
    leader = cluster.alive[0]
    legitimate = cluster.create("legitimate", min_insync_replicas="2")
    victim = cluster.create("victim", (leader,), message_timestamp_after_max_ms=str((1 << 63) - 1))
    compacted = cluster.create("compacted", (leader,), cleanup_policy="compact")
    before = cluster.partition(legitimate)
    registered = {one: cluster.image().brokers.by_id[one].epoch for one in cluster.makes}
    logged = {one: len(process.text) for one, process in cluster.processes.items()}
    for process in cluster.processes.values():
        Path(f"/proc/{process.popen.pid}/clear_refs").write_text("5")
    target = BrokerTarget(cluster.ports, leader, victim.name, str(victim.id), str(compacted.id), seed, seconds, scale)
    with Writes(cluster, legitimate) as writes:
        began = time.monotonic()
        while len(writes.times) < QUIET_WRITES:
            assert time.monotonic() < began + 60, writes.refused
            threading.Event().wait(0.05)
        quiet = writes.longest_since(began)
        attacked = time.monotonic()
        did = run_attack(name, target)
        count = len(writes.times)
        while len(writes.times) < count + QUIET_WRITES:
            assert time.monotonic() < attacked + seconds + 400, writes.refused
            threading.Event().wait(0.05)
        longest = writes.longest_since(attacked)
    for one, process in cluster.processes.items():
        assert process.popen.poll() is None, f"broker {one} ended:\n{process.text[-3000:]}"
    assert writes.refused == []
    after = cluster.partition(legitimate)
    assert (after.leader, after.leader_epoch, set(after.isr)) == (before.leader, before.leader_epoch, set(before.isr))
    assert {one: cluster.image().brokers.by_id[one].epoch for one in cluster.makes} == registered
    read = cluster.values(leader, legitimate)
    assert {offset: read[offset] for offset in writes.acknowledged} == writes.acknowledged
    texts = "".join(process.text[logged[one] :] for one, process in cluster.processes.items())
    seen = Seen(
        did=did,
        quiet=quiet,
        longest=longest,
        peaks={one: _peak_mib(process.popen.pid) for one, process in cluster.processes.items()},
        turns=sorted(int(one) for one in re.findall(r"long-turn.*? ms=(\d+)", texts)),
    )
    print(f"{name}: {seen}")
    return seen


def _peak_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) // 1024


def check(attacked: Attacked, name: str, *, seconds: float, scale: float) -> Seen:
    """An attack on brokers of ours, with the bounds that we promise."""
    try:
        seen = attack(attacked.current(), name, seconds=seconds, scale=scale)
        assert max(seen.peaks.values()) <= MEMORY_MIB[name], seen
        assert max(seen.turns, default=0) <= LONGEST_TURN_MS[scale], seen
    except BaseException:
        attacked.end()
        raise
    return seen


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    attacked = Attacked("ours", lambda: tmp_path_factory.mktemp("ours"))
    yield attacked
    attacked.end()


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    attacked = Attacked("jvm", lambda: tmp_path_factory.mktemp("jvm"))
    yield attacked
    attacked.end()


@pytest.mark.parametrize("name", SLICE)
def test_each_attack_for_a_short_time(ours: Attacked, name: str) -> None:
    """A twentieth of the size that once froze a broker, for a moment each."""
    check(ours, name, seconds=SLICE_SECONDS, scale=SLICE_SCALE)


@pytest.mark.soak
@pytest.mark.kafka
@pytest.mark.parametrize("name", ATTACKS)
def test_a_client_waits_as_briefly_as_with_kafka(ours: Attacked, jvm: Attacked, name: str) -> None:
    """The full size, on brokers of both makes: the longest write takes at most three times as long with ours."""
    mine = check(ours, name, seconds=SOAK_SECONDS, scale=1.0)
    theirs = attack(jvm.current(), name, seconds=SOAK_SECONDS, scale=1.0)
    print(f"{name}: ours {mine.longest:.3f} s, Kafka {theirs.longest:.3f} s")
    assert mine.longest <= TIMES_THE_JVM * theirs.longest + SPARE_SECONDS
