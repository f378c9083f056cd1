"""Strangers attack three running controllers: no node ends, no leadership is lost, memory is bounded, writes go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import SystemRandom

import pytest
from msgspec import json as msgspec_json

from metadata_log import replay
from metadata_log.image import ResourceType
from support import TESTS
from support.controller_processes import CLUSTER_ID, IDS, Processes
from support.eventually import eventually
from support.hostile.attack import ATTACKS, FORGERIES, Target
from support.wire import leader_of, set_client_metrics
from timed_writer import NAME, Writer

SLICE_SECONDS = 1.0
SOAK_SECONDS = 600 / (len(ATTACKS) + len(FORGERIES))
"""Ten minutes altogether."""
QUIET_SECONDS = 0.5
MEMORY_MIB = 200
SLOWDOWN = 10
"""How many times its quiet 99th percentile the legitimate writer's may become."""
LASTING = ("malicious_leader", "forging_leader")
"""A node that took a forged commit for a leader's refuses to cut its log there; only authentication keeps forgers out.
A forged high watermark alone is enough: it commits what a deposed leader has appended and no other voter has.
Such nodes live on and wait for an operator, so the quorum is not used again.
"""
OLD_RECORDS = 300
OLD_VALUE_BYTES = 20_000


class Quorums:
    """One quorum for all attacks, and a new one after a failure, so that one failure does not hide the next attack."""

    def __init__(self, new_directory: Callable[[], Path]) -> None:
        self._new_directory = new_directory
        self._current: Processes | None = None

    def current(self) -> Processes:
        """Three controllers with Kafka's timeouts, and some megabytes of log for readers of old offsets."""
        if self._current is None:
            self._current = processes = Processes(self._new_directory(), {})
            for node in IDS:
                processes.start(node)
            leader = leader_of(processes)
            for number in range(OLD_RECORDS):
                metrics = ",".join(f"org.apache.kafka.{number}.{one}" for one in range(OLD_VALUE_BYTES // 24))
                set_client_metrics(processes.ports[leader], f"old-{number}", metrics=metrics)
        return self._current

    def end(self) -> None:
        """Kill the quorum, and show what its nodes printed."""
        if self._current is not None:
            print(self._current.errors())
            for node in tuple(self._current.running):
                self._current.kill(node)
            self._current = None


@pytest.fixture(scope="module")
def quorums(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorums]:
    quorums = Quorums(lambda: tmp_path_factory.mktemp("quorum"))
    yield quorums
    quorums.end()


@contextmanager
def spoilt_by_failure(quorums: Quorums) -> Iterator[Processes]:
    """The quorum; a failure in the block ends it."""
    try:
        yield quorums.current()
    except BaseException:
        quorums.end()
        raise


def forget_peaks(processes: Processes) -> None:
    """Let the kernel measure the peak of resident memory from now on."""
    for process in processes.running.values():
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")


def peak_mib(processes: Processes, node: int) -> int:
    """The most memory that a node has had resident since the last attack began, in MiB."""
    status = Path(f"/proc/{processes.running[node].pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) // 1024


def check_that_all_live(processes: Processes) -> None:
    for node, process in processes.running.items():
        assert process.poll() is None, f"node {node} ended with {process.poll()}\n{processes.errors()}"


def position(processes: Processes, node: int) -> tuple[int, int]:
    """The epoch and the end of a node's log, from its files."""
    last = processes.batches(node)[-1]
    return last.epoch, last.next_offset


def run_attack(name: str, target: Target) -> dict[str, int]:
    """Run the attack in a process of its own to its end; what it did."""
    done = subprocess.run(
        [sys.executable, "-m", "support.hostile.attack", name, msgspec_json.encode(target).decode()],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=target.seconds + 60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    did: dict[str, int] = json.loads(done.stdout)
    assert sum(did.values()) > 0, "the attack did nothing"
    return did


def percentile(times: list[float], share: float) -> float:
    return times[min(int(len(times) * share), len(times) - 1)]


def attack(processes: Processes, name: str, seconds: float, *, is_measured: bool) -> None:
    """Attack for so long while a legitimate client writes; then look at everything that was promised."""
    seed = int(os.environ.get("ATTACK_SEED") or SystemRandom().getrandbits(32))
    print(f"ATTACK_SEED={seed}")
    is_forgery = name in FORGERIES
    leader = leader_of(processes)
    epoch, end_offset = position(processes, leader)
    target = Target(processes.ports, leader, epoch, end_offset, CLUSTER_ID, seed, seconds)
    forget_peaks(processes)
    with Writer(processes.ports) as writer:
        began = time.monotonic()
        eventually(lambda: len(writer.times) > 20 and time.monotonic() > began + QUIET_SECONDS, "quiet writes")
        quiet = writer.since(began)
        attacked = time.monotonic()
        did = run_attack(name, target)
        during = writer.since(attacked)
        check_that_all_live(processes)
        if name not in LASTING:
            eventually(lambda: len(writer.since(attacked)) > len(during) + 10, "writes after the attack")
    ratio = percentile(during, 0.99) / percentile(quiet, 0.99) if during else float("inf")
    peaks = {node: peak_mib(processes, node) for node in processes.running}
    print(
        f"{name}: {did}; writer p99 quiet {percentile(quiet, 0.99) * 1000:.1f} ms, "
        f"attacked {percentile(during, 0.99) * 1000 if during else -1:.1f} ms, "
        f"longest {during[-1] * 1000 if during else -1:.0f} ms, ratio {ratio:.1f}, "
        f"{len(during)} writes, {writer.refused} refused; peak MiB {peaks}"
    )
    check_that_all_live(processes)
    assert max(peaks.values()) <= MEMORY_MIB, peaks
    if not is_forgery:
        now = leader_of(processes)
        assert (now, position(processes, now)[0]) == (leader, epoch), "the attack cost the leadership"
        assert writer.refused == 0
    if is_measured and not is_forgery:
        assert ratio <= SLOWDOWN
    if name not in LASTING:
        check_what_was_acknowledged(processes, writer.acknowledged)


def check_what_was_acknowledged(processes: Processes, last: int) -> None:
    """The last acknowledged number, or a later one, is in the log of every node; no log is damaged."""

    def has(node: int) -> bool:
        value = replay(processes.log_dir(node)).configs.of((ResourceType.CLIENT_METRICS, NAME)).get("interval.ms", "0")
        return int(value or 0) >= last

    for node in processes.running:
        eventually(lambda node=node: has(node), f"node {node} has what was acknowledged")
        assert processes.batches(node)


@pytest.mark.parametrize("name", [*ATTACKS, *FORGERIES])
def test_each_attack_for_a_short_time(quorums: Quorums, name: str) -> None:
    """For a moment each; how much slower writes became is printed, as this machine may be busy with other tests."""
    with spoilt_by_failure(quorums) as processes:
        attack(processes, name, SLICE_SECONDS, is_measured=False)
    if name in LASTING:
        quorums.end()


@pytest.mark.soak
@pytest.mark.parametrize("name", [*ATTACKS, *FORGERIES])
def test_each_attack(quorums: Quorums, name: str) -> None:
    with spoilt_by_failure(quorums) as processes:
        attack(processes, name, SOAK_SECONDS, is_measured=True)
    if name in LASTING:
        quorums.end()


def test_nodes_end_cleanly_and_start_again_after_all_attacks(quorums: Quorums) -> None:
    with spoilt_by_failure(quorums) as processes:
        assert processes.stop() == dict.fromkeys(IDS, 0)
        for node in IDS:
            processes.start(node)
        assert leader_of(processes) in IDS
