"""Faults between and of real processes: links that are cut, slow, reset, nodes that stand still or die, in a quorum of
both makes under writes; afterwards the files must be those of a quorum that kept its promises.
"""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

import pytest
import trio

from kraft.admin import AdminError, open_admin
from kraft.admin.voters import remove_voter
from kraft.cli.cluster.administration import parse_bootstrap
from kraft.history_checker import Finding, History, check_history
from metadata_log import replay
from metadata_log.image import ResourceType
from metadata_log.types import NO_NODE
from support.interop.mixed_quorum import TOLD_THAT_IT_LEADS, Make, MixedQuorum, batches_in, truncations, values_in
from support.interop.our_nodes import our_format, told
from support.interop.real_kafka import CLUSTER_ID, KafkaInstallation, QuorumLayout, eventually
from support.loopback import free_ports
from support.wire import active_controller, leader_of, set_client_metrics
from tcp_proxy import Proxies
from transport.protocol.errors import Error

pytestmark = pytest.mark.kafka

SECONDS: Final = 30
SOAK_SECONDS: Final = 1800
LINGER_0: Final = ("controller.quorum.append.linger.ms=0",)
PATIENCE_SECONDS: Final = 120
FIRST: Final = 1
SECONDS_PER_KILL: Final = 20
"""A JVM that starts again keeps a machine busy for some seconds."""
KAFKAS_ENDS: Final = {
    "Unexpected acknowledgement from non-voter": "a voter answered that it had just removed",
    TOLD_THAT_IT_LEADS: "it led before its disk was lost, and was told so",
}
"""What ends a controller of Kafka 4.3.1, and why."""
NAMES: Final = 100
SNAPSHOTS: Final = (
    "metadata.log.max.record.bytes.between.snapshots=6000",
    "metadata.max.retention.bytes=20000",
    "controller.quorum.fetch.snapshot.max.bytes=1000",
)
"""A node that was away may find the log deleted at the leader, and then fetches a snapshot in pieces."""


class Writer:
    """Writes one change after the other, to the leader; `acknowledged` holds the numbers of the acknowledged changes,
    the last one for each name.
    """

    def __init__(self, layout: QuorumLayout) -> None:
        self.acknowledged: list[int] = []
        self._ports = list(layout.ports.values())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write while the block lasts."""
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join(120)
            assert not self._thread.is_alive(), "a write is never answered"

    def _write(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            for port in self._ports:
                if self._is_acknowledged(port, number):
                    self.acknowledged.append(number)
                    break
            self._stop.wait(0.02)

    def _is_acknowledged(self, port: int, number: int) -> bool:
        try:
            return set_client_metrics(port, name_of(number), metrics=f"value-{number}") is Error.NONE
        except (OSError, AssertionError):
            return False

    def wait_for_progress(self) -> None:
        """Wait until some more changes are acknowledged."""
        wanted = len(self.acknowledged) + 5
        eventually(lambda: len(self.acknowledged) >= wanted, "changes are acknowledged", 120)


def name_of(number: int) -> str:
    """The name that the change with this number changes."""
    return f"stream-{number % NAMES}"


class Havoc:
    """Draws faults and undoes them; says what it does."""

    def __init__(self, nodes: MixedQuorum, proxies: Proxies, seed: int, kills: int) -> None:
        self._nodes = nodes
        self._proxies = proxies
        self._rng = Random(seed)
        self._kills = kills
        self._never = threading.Event()
        self._begun = time.monotonic()

    def _say(self, what: str) -> None:
        print(f"{time.monotonic() - self._begun:7.1f} s: {what}")

    def wreak(self, seconds: float) -> None:
        """One fault after the other, some of them on top of others."""
        faults = [self._isolate, self._isolate_leader, self._cut, self._delay, self._throttle, self._reset, self._pause]
        if self._nodes.layout.is_dynamic:
            faults += [self._remove, self._remove]
        while time.monotonic() < self._begun + seconds:
            self._revive()
            one = self._kill if self._kills and self._rng.random() < 0.1 else self._rng.choice(faults)
            undo = one()
            self._never.wait(self._rng.uniform(0.5, 5))
            undo()
            if self._rng.random() < 0.6:
                self._say("everything heals")
                self._proxies.heal()
                self._never.wait(self._rng.uniform(0, 2))
        self._proxies.heal()
        self._revive()

    def _revive(self) -> None:
        """Start a controller of Kafka's again that its own bug has ended; no other node may have ended."""
        for node, process in self._nodes.processes.items():
            if process.popen.poll() is not None and self._nodes.makes[node] == "kafka":
                why = next((why for words, why in KAFKAS_ENDS.items() if words in process.text), None)
                if why is not None:
                    self._say(f"node {node} has ended, as {why}")
                    self._nodes.start(node)
        self._nodes.check_that_all_live()

    def _node(self) -> int:
        return self._rng.choice(list(self._nodes.layout.ports))

    def _pair(self) -> tuple[int, int]:
        source, target = self._rng.sample(list(self._nodes.layout.ports), 2)
        return source, target

    def _leave(self) -> None:
        """Stays until everything heals."""

    def _isolate(self) -> Callable[[], None]:
        node = self._node()
        self._say(f"node {node} is cut from the others")
        self._proxies.isolate(node)
        return self._leave

    def _isolate_leader(self) -> Callable[[], None]:
        leader = active_controller(self._nodes.layout.ports[self._node()])
        if leader in self._nodes.layout.ports:
            self._say(f"the leader {leader} is cut from the others")
            self._proxies.isolate(leader)
        return self._leave

    def _cut(self) -> Callable[[], None]:
        source, target = self._pair()
        self._say(f"{source} does not reach {target}, which reaches it")
        self._proxies.link(source, target).is_cut = True
        return self._leave

    def _delay(self) -> Callable[[], None]:
        for source, target in (self._pair(), self._pair()):
            self._proxies.link(source, target).delay_s = delay_s = round(self._rng.choice((0.01, 0.1, 0.6)), 2)
            self._say(f"{source} reaches {target} after {delay_s} s")
        return self._leave

    def _throttle(self) -> Callable[[], None]:
        source, target = self._pair()
        self._proxies.link(source, target).bytes_per_s = speed = self._rng.choice((200, 5000, 100_000))
        self._say(f"{source} has {speed} bytes a second from and to {target}")
        return self._leave

    def _reset(self) -> Callable[[], None]:
        source, target = self._pair()
        self._say(f"the connections from {source} to {target} are reset")
        self._proxies.reset(source, target)
        return self._leave

    def _pause(self) -> Callable[[], None]:
        node = self._node()
        process = self._nodes.processes[node]
        self._say(f"node {node} stands still")
        process.signal(signal.SIGSTOP)
        return lambda: process.signal(signal.SIGCONT)

    def _kill(self) -> Callable[[], None]:
        self._kills -= 1
        node = self._node()
        if self._nodes.layout.is_dynamic and self._rng.random() < 0.5:
            self._lose_disk(node)
            return self._leave
        self._say(f"node {node} is killed")
        self._nodes.end(node, "kill")
        return lambda: self._nodes.start(node)

    def _lose_disk(self, node: int) -> None:
        """The node comes back as another replica. Until that replica votes, one voter is lost for good, and the removal
        of another voter would leave no majority.
        """
        self._proxies.heal()
        wait_until_all_vote(self._nodes)
        self._say(f"node {node} loses its disk")
        self._nodes.end(node, "kill")
        shutil.rmtree(self._nodes.layout.log_dir(node))
        format_to_join(self._nodes.layout, node)
        self._nodes.start(node)
        wait_until_all_vote(self._nodes, self._revive)

    def _remove(self) -> Callable[[], None]:
        """Remove a node from the voters; the node joins again by itself."""
        node = self._node()
        answer = "done"
        try:
            trio.run(self._without, node)
        except (AdminError, trio.TooSlowError) as refused:
            answer = str(refused)
        self._say(f"node {node} is not to vote: {answer}")
        return self._leave

    async def _without(self, node: int) -> None:
        where = parse_bootstrap(self._nodes.layout.bootstrap)
        with trio.fail_after(5):
            async with open_admin(where, timeout_ms=4000) as admin:
                await remove_voter(admin, node, force=True)


def quorum(
    kafka: KafkaInstallation,
    root: Path,
    of_kafka: tuple[int, ...],
    settings: tuple[str, ...],
    *,
    is_dynamic: bool = False,
) -> MixedQuorum:
    """Three controllers, formatted, that advertise the ports of proxies. In a dynamic quorum the first begins, and all
    make themselves voters.
    """
    ports = free_ports(6)
    advertised, behind = dict(zip((1, 2, 3), ports, strict=False)), dict(zip((1, 2, 3), ports[3:], strict=True))
    layout = QuorumLayout(root, CLUSTER_ID, advertised, settings, is_dynamic, behind)
    makes: dict[int, Make] = {node: "kafka" if node in of_kafka else "ours" for node in advertised}
    if is_dynamic:
        for node in advertised:
            format_to_join(layout, node, "--standalone" if node == FIRST else "--no-initial-controllers")
    else:
        our_format(layout)
    return MixedQuorum(kafka, layout, makes, auto_join=advertised if is_dynamic else ())


def format_to_join(layout: QuorumLayout, node: int, how: str = "--no-initial-controllers") -> None:
    """Format a directory of a dynamic quorum."""
    told("format", "-c", str(layout.properties(node)), "--cluster-id", layout.cluster_id, how)


def wait_until_all_vote(nodes: MixedQuorum, meanwhile: Callable[[], None] | None = None) -> None:
    """Wait until each node's vote counts, under its present directory."""
    layout = nodes.layout
    present = {(node, layout.directory_id(node)) for node in layout.ports} if layout.is_dynamic else set()

    def all_vote() -> bool:
        if meanwhile is not None:
            meanwhile()
        return present <= {(one.id, one.directory_id) for one in nodes.quorum().voters}

    eventually(all_vote, "all vote", PATIENCE_SECONDS)


def survive(nodes: MixedQuorum, seconds: int) -> list[int]:
    """Start the nodes, and let them live through so many seconds of faults; which writes were acknowledged."""
    seed = SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    layout = nodes.layout
    writer = Writer(layout)
    with Proxies(layout.ports, layout.behind) as proxies:
        try:
            nodes.start()
            leader_of(layout)
            with writer.running():
                writer.wait_for_progress()
                Havoc(nodes, proxies, seed, kills=seconds // SECONDS_PER_KILL).wreak(seconds)
                writer.wait_for_progress()
            leader_of(layout)
            wait_until_all_vote(nodes)
            nodes.settle()
        finally:
            nodes.kill()
    print(f"{len(writer.acknowledged)} changes were acknowledged")
    history = check_history(*(str(layout.log_dir(node)) for node in layout.ports))
    unexplained = [one for one in history.findings if not is_kafkas(one, history, nodes)]
    assert not unexplained, "\n".join(map(str, unexplained))
    return writer.acknowledged


def is_kafkas(finding: Finding, history: History, nodes: MixedQuorum) -> bool:
    """Whether voters changed two at a time under a leader of Kafka's that had truncated its log at or before there.

    Such a leader does not read the records that replace the truncated ones, and so may know an older voter set than
    the one in its log (`test_kafka_bugs.py` shows this).
    """
    offset = finding.offset
    if finding.rule != "OneVoterAtATime" or offset is None:
        return False
    batches = (batch for node in nodes.layout.ports for batch in batches_in(nodes.layout.partition(node)))
    epochs = {batch.epoch for batch in batches if batch.base_offset <= offset < batch.next_offset}
    leaders = {history.leaders.get(epoch, NO_NODE) for epoch in epochs}
    return bool(leaders) and all(
        nodes.makes.get(leader) == "kafka" and any(at <= offset for at in truncations(nodes, leader))
        for leader in leaders
    )


@pytest.mark.parametrize(
    ("of_kafka", "seconds"),
    [
        pytest.param((3,), SECONDS, id="two-of-ours"),
        pytest.param((3,), SOAK_SECONDS, id="two-of-ours-long", marks=pytest.mark.soak),
        pytest.param((2, 3), SOAK_SECONDS, id="two-of-kafkas-long", marks=pytest.mark.soak),
    ],
)
def test_invariants_hold_under_link_faults(
    kafka: KafkaInstallation, tmp_path: Path, of_kafka: tuple[int, ...], seconds: int
) -> None:
    nodes = quorum(kafka, tmp_path, of_kafka, LINGER_0)
    acknowledged = survive(nodes, seconds)
    for node in nodes.layout.ports:
        missing = set(acknowledged) - set(values_in(batches_in(nodes.layout.partition(node))))
        assert not missing, f"node {node} lacks {sorted(missing)}"


BOTH: Final = [pytest.param((3,), id="two-of-ours"), pytest.param((2, 3), id="two-of-kafkas")]


@pytest.mark.soak
@pytest.mark.parametrize("of_kafka", BOTH)
def test_invariants_hold_under_link_faults_while_voters_change(
    kafka: KafkaInstallation, tmp_path: Path, of_kafka: tuple[int, ...]
) -> None:
    """Votes are taken away, also the leader's, and disks are lost; all nodes join again by themselves."""
    nodes = quorum(kafka, tmp_path, of_kafka, LINGER_0, is_dynamic=True)
    acknowledged = survive(nodes, SOAK_SECONDS // 2)
    for node in nodes.layout.ports:
        missing = set(acknowledged) - set(values_in(batches_in(nodes.layout.partition(node))))
        assert not missing, f"node {node} lacks {sorted(missing)}"


@pytest.mark.soak
@pytest.mark.parametrize("of_kafka", BOTH)
def test_invariants_hold_under_link_faults_with_snapshots(
    kafka: KafkaInstallation, tmp_path: Path, of_kafka: tuple[int, ...]
) -> None:
    """The log is gone where a node that comes back would go on: it takes snapshots of the other make, too."""
    nodes = quorum(kafka, tmp_path, of_kafka, (*LINGER_0, *SNAPSHOTS))
    last = {name_of(number): number for number in survive(nodes, SOAK_SECONDS // 2)}
    for node in nodes.layout.ports:
        configs = replay(str(nodes.layout.log_dir(node))).configs
        for name, number in last.items():
            value = configs.of((ResourceType.CLIENT_METRICS, name))["metrics"]
            assert int(value.removeprefix("value-")) >= number, f"node {node} has {value} for {name}, not {number}"
