"""The outage after the leader is killed, or shut down gracefully: ours beside Apache Kafka's, in one run.

    python bench/failover.py [--targets ours,kafka] [--rounds 10] [--heat 10] [--dir DIR]
                             [--security PLAINTEXT,SSL,SASL_SSL]

Three controllers each, default timeouts, over TCP with fsync. In each round the leader gets SIGKILL, and in another
round SIGTERM; write attempts go to both other nodes every 20 ms. The figure is the time from the signal to the end of
the first write that was sent after the signal and committed. Then the node is started again. The next round begins when
all three nodes have the committed records. Before the first round each quorum is loaded for the same time (--heat), so
that the compilers of the JVMs are equally warm; a node that was started again is not. The bench prints the JVMs' flags.

--security starts each quorum once for each of these protocols, as `commit.py` does. All nodes of a quorum and all write
attempts use the protocol, so that the outage includes the handshakes and logins of new connections.
"""

from __future__ import annotations

import argparse
import signal
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from load import Address, Refused, ask, error_of, find_leader, frame_of, load, run
from msgspec import Struct
from peer_quorums.secured import PLAINTEXT, PROTOCOLS, connector_of, settings_of
from peer_quorums.secured import writers as secured_writers
from quorums import Nodes, QuorumLayout, jvm_flags, start_quorum

from metadata_log.types import METADATA_TOPIC
from transport.protocol.apis import ApiKey
from transport.protocol.headers import decode_response, encode_request
from transport.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)

INTERVAL_SECONDS = 0.02
PATIENCE_SECONDS = 60.0
HEAT_CLIENTS = 64
SIGNALS = {"killed": signal.SIGKILL, "stopped gracefully": signal.SIGTERM}


class Target(Struct):
    """A running quorum."""

    name: str
    protocol: str
    layout: QuorumLayout
    nodes: Nodes
    connect: Callable[[Address], socket.socket]
    """Connects to a node by the protocol."""

    @property
    def title(self) -> str:
        """The name, and the protocol if there is one."""
        return self.name if self.protocol == PLAINTEXT else f"{self.name} {self.protocol}"

    @property
    def leader(self) -> Address:
        """The address of the node that commits."""
        return find_leader([self.address(node) for node in self.layout.ports], to=self.connect)

    def address(self, node: int) -> Address:
        """The address of a node."""
        return "127.0.0.1", self.layout.ports[node]

    def heat(self, seconds: float) -> None:
        """Load the leader for some seconds."""
        if self.protocol == PLAINTEXT:
            run(self.leader, HEAT_CLIENTS, seconds)
        else:
            load(secured_writers(self.leader, HEAT_CLIENTS, 128, self.connect), seconds)


def start(name: str, protocol: str, root: Path, stack: ExitStack) -> Target:
    """Three controllers of one implementation that run until the stack closes."""
    below = root / protocol
    below.mkdir(exist_ok=True)
    layout, nodes = start_quorum(name, below, stack, settings_of(protocol, below))
    return Target(name, protocol, layout, nodes, connector_of(protocol))


def outage_ms(target: Target, number: int, turn: int) -> float:
    """Send this signal to the leader; returns the time in ms until another node commits a later write."""
    leading = target.leader
    leader = next(node for node in target.layout.ports if target.address(node) == leading)
    others = [node for node in target.layout.ports if node != leader]
    committed_at: list[float] = []
    done = threading.Event()

    def try_until_done(node: int) -> None:
        attempt = 0
        while not done.is_set():
            attempt += 1
            try:
                with target.connect(target.address(node)) as connection:
                    # The values differ, because a value that is set already causes no record.
                    error = error_of(ask(connection, frame_of(1000 * turn + node, attempt, 64)))
            except (OSError, Refused):
                error = None
            if error == 0:
                committed_at.append(time.monotonic())
                done.set()
            done.wait(INTERVAL_SECONDS)

    askers = [threading.Thread(target=try_until_done, args=(node,), daemon=True) for node in others]
    target.nodes.processes[leader].signal(signal.Signals(number))
    signalled_at = time.monotonic()
    for asker in askers:
        asker.start()
    if not done.wait(PATIENCE_SECONDS):
        raise Refused(f"{target.title}: nothing was committed for {PATIENCE_SECONDS:.0f} s after {leader} went")
    for asker in askers:
        asker.join()
    target.nodes.processes[leader].wait()
    target.nodes.start(leader)
    target.nodes.wait_until_listening()
    wait_until_whole(target)
    return 1000 * (min(committed_at) - signalled_at)


def wait_until_whole(target: Target) -> None:
    """Wait until each voter follows the leader and has all committed records."""
    partition = DescribeQuorumRequestPartitionData(partition_index=0)
    request = DescribeQuorumRequest(
        topics=[DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    )
    content = encode_request(ApiKey.DESCRIBE_QUORUM, 0, 1, "bench", request)
    frame = len(content).to_bytes(4, "big") + content
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            with target.connect(target.leader) as connection:
                _, answer = decode_response(ApiKey.DESCRIBE_QUORUM, 0, ask(connection, frame))
        except OSError:
            continue
        assert isinstance(answer, DescribeQuorumResponse)
        found = answer.topics[0].partitions[0]
        if found.current_voters and all(one.log_end_offset >= found.high_watermark for one in found.current_voters):
            return
        time.sleep(INTERVAL_SECONDS)
    raise Refused(f"{target.title}: a voter still lacks records after {PATIENCE_SECONDS:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="ours,kafka", help="the first is compared")
    parser.add_argument(
        "--security", type=lambda text: text.split(","), default=[PLAINTEXT], help=f"of {', '.join(PROTOCOLS)}"
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--heat", type=float, default=10.0, help="seconds of load for each quorum at first")
    parser.add_argument(
        "--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the nodes keep their files"
    )
    options = parser.parse_args()
    if unknown := set(options.security) - set(PROTOCOLS):
        parser.error(f"--security: there is no {', '.join(sorted(unknown))}")
    found: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-failover-", dir=options.dir) as scratch, ExitStack() as stack:
        targets = [
            start(name, protocol, Path(scratch), stack)
            for protocol in options.security
            for name in options.targets.split(",")
        ]
        for target in targets:
            if flags := jvm_flags(target.name):
                print(f"{target.title}: JVM flags {flags}")
            target.heat(options.heat)
        print(f"heat: {options.heat:g} s with {HEAT_CLIENTS} clients, each quorum")
        for turn in range(options.rounds):
            for how, number in SIGNALS.items():
                for target in targets:
                    gap = outage_ms(target, number, turn)
                    found.setdefault((how, target.title), []).append(gap)
                    print(f"{turn + 1:3}  {target.title:16}{how:18}{gap:8.0f} ms", flush=True)
    print(f"\n{'':34}{'median ms':>10}{'least':>8}{'most':>8}{'ratio':>8}   of {options.rounds} rounds")
    for (how, title), gaps in found.items():
        ratio = statistics.median(gaps) / statistics.median(found[how, targets[0].title])
        row = (statistics.median(gaps), min(gaps), max(gaps))
        print(
            f"{title:16}{how:18}"
            + "".join(f"{one:{10 if at == 0 else 8}.0f}" for at, one in enumerate(row))
            + f"{ratio:8.1f}"
        )


if __name__ == "__main__":
    main()
