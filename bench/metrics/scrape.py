"""The cost of a metrics listener for a leader: commits with and without it, and the CPU time of one scrape.

    python bench/metrics/scrape.py [--rounds 6] [--seconds 2] [--clients 16] [--every 1.0] [--dir DIR] [--top]

Three nodes of a raw log run in this process, over TCP and with fsync, as a program runs them (`kraft.open_node` without
a state machine). Each round loads a quorum without listeners and one with a listener on each node, in alternating
order, and the second one is scraped over HTTP every so many seconds, on all nodes: fifteen times as often as Prometheus
does by default. The bench prints the commits per second and the CPU time of a commit on all three nodes together for
each round, the median of the ratios of these times, and the CPU time of scrapes of an idle controller. The rates and
the times depend on the other load of the machine: run the bench on a quiet one. --every 0 scrapes never: what is left
is the counting.

--top measures `kraft top` instead. Each round loads one quorum of controllers in this process: clients change
settings, without and with a view that another process refreshes every so many seconds, in alternating order. The ratios
are those of the rates, and of the CPU times of this process for a change. The view needs a core of its own, since it
replays each record that the leader sends: on two cores it takes from the rates what the CPU times do not show. The
last line is the CPU time of the three controllers for one refresh while nothing changes.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from random import Random
from typing import Final, TypeVar

import trio

from kraft import Config
from kraft.admin import ConfigChange, ResourceType, open_admin
from kraft.node.clock import NodeClock
from kraft.node.embed import tcp_transport
from kraft.node.metrics.monitor import KEEP_SECONDS, Monitor
from kraft.node.node import Node
from kraft.node.run import run_node
from kraft.operate.top.poll import LIVE_TIMEOUT_MS, Poller
from kraft.operate.top.samples import Sample
from kraft.process.hosting import host_silent_raw_log
from kraft.process.parts import ApplicationFactory
from metadata_log.disk import OsDisk
from metadata_log.log.log_dir import format_directory
from transport.addresses import bind, bound_to
from transport.interface import Endpoint, Listener

IDS: Final = (1, 2, 3)
CLUSTER_ID: Final = "4L6g3nShT-eMCtK--X86sw"
SCRAPES: Final = 40
FREQUENT: Final = 0.1
"""The seconds between the refreshes of a view of an idle quorum."""

Load = TypeVar("Load")


def free_ports(count: int) -> list[int]:
    """Ports that are free now."""
    held = [bind(Listener("x", "127.0.0.1", 0)) for _ in range(count)]
    ports = [bound_to(Listener("x", "127.0.0.1", 0), one).port for one in held]
    for one in held:
        one.close()
    return ports


@asynccontextmanager
async def quorum(
    directory: Path, *, is_monitored: bool, application: ApplicationFactory | None = host_silent_raw_log
) -> AsyncIterator[tuple[list[Node], list[int]]]:
    """Three running nodes, and the ports of their metrics listeners."""
    ports, metrics = free_ports(3), free_ports(3)
    voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in zip(IDS, ports, strict=True))
    nodes: list[Node] = []
    async with trio.open_nursery() as nursery:
        for node_id, port, metrics_port in zip(IDS, ports, metrics, strict=True):
            config = Config.parse(
                f"process.roles=controller\nnode.id={node_id}\ncontroller.quorum.voters={voters}\n"
                f"controller.listener.names=CONTROLLER\nlisteners=CONTROLLER://127.0.0.1:{port}\n"
                f"log.dirs={directory}/{node_id}\ncontroller.quorum.append.linger.ms=0\n"
                f"kraft.metrics.listener={metrics_port}\n"
            )
            format_directory(
                OsDisk(), config.metadata_log_dir, node_id=node_id, cluster_id=CLUSTER_ID, rng=Random(node_id), now_ms=1
            )
            clock = NodeClock()
            run = partial(
                run_node,
                config,
                transport=tcp_transport(config),
                disk=OsDisk(),
                rng=Random(node_id),
                clock=clock,
                application=application,
                monitor=Monitor(config, clock) if is_monitored else None,
            )
            nodes.append(await nursery.start(run))
        yield nodes, metrics
        nursery.cancel_scope.cancel()


def scrape(port: int) -> int:
    """Scrape once; returns the size of the answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/metrics")
        return len(connection.getresponse().read())
    finally:
        connection.close()


async def rate(
    requests: Sequence[Callable[[], Awaitable[object]]],
    seconds: float,
    beside: Sequence[Callable[[], Awaitable[object]]] = (),
) -> tuple[float, float]:
    """Clients that make their request again and again: how often a second, and the microseconds of CPU time for each.

    On a machine that is too busy for one answer within the time, they go on until the first.
    """
    done, first = 0, trio.Event()
    cpu, began = time.process_time(), time.perf_counter()

    async def client(request: Callable[[], Awaitable[object]]) -> None:
        nonlocal done
        while True:
            await request()
            done += 1
            first.set()

    async with trio.open_nursery() as nursery:
        for request in requests:
            nursery.start_soon(client, request)
        for other in beside:
            nursery.start_soon(other)
        await trio.sleep(seconds)
        await first.wait()
        nursery.cancel_scope.cancel()
    return done / (time.perf_counter() - began), (time.process_time() - cpu) * 1e6 / done


async def commits(
    nodes: list[Node], seconds: float, clients: int, every: float, ports: list[int]
) -> tuple[float, float]:
    """The commits per second, and the microseconds of CPU time for each; `ports` are scraped meanwhile."""
    await nodes[0].wait_for_leader()
    leader = next(node for node in nodes if node.status().leader.leader_id == node.status().node_id)

    async def scraper() -> None:
        while True:
            await trio.sleep(every)
            for port in ports:
                await trio.to_thread.run_sync(scrape, port, abandon_on_cancel=True)

    beside = [scraper] if ports and every else []
    return await rate([lambda: leader.append([b"x" * 100])] * clients, seconds, beside)


async def changes(ports: list[int], seconds: float, clients: int) -> tuple[float, float]:
    """The settings per second that clients of controllers change, each change committed, and the microseconds of CPU
    time for each, clients and controllers together.
    """
    values = count()
    async with open_admin([Endpoint("127.0.0.1", port) for port in ports]) as admin:
        await admin.describe_quorum()

        async def change(number: int) -> None:
            one = ConfigChange(
                resource_type=ResourceType.CLIENT_METRICS,
                resource_name=f"client-{number}",
                key="interval.ms",
                value=str(1000 + next(values) % 1000),
            )
            await admin.alter_configs([one])

        return await rate([partial(change, number) for number in range(clients)], seconds)


async def refresh(ports: list[int], every: float) -> None:
    """A view of a quorum in this process, which prints a line once it has everything."""
    is_begun = False

    def show(sample: Sample) -> None:
        nonlocal is_begun
        if sample.metadata is not None and not is_begun:
            is_begun = True
            print("refreshing", flush=True)

    async with open_admin([Endpoint("127.0.0.1", port) for port in ports], timeout_ms=LIVE_TIMEOUT_MS) as admin:
        await Poller(admin, show, clock_ms=lambda: time.time_ns() // 1_000_000).run(every)


async def first_line(output: trio.abc.ReceiveStream) -> bytes:
    """The first line of a process; the pipe may deliver it in parts."""
    line = b""
    while not line.endswith(b"\n"):
        part = await output.receive_some()
        assert part, "the process has ended before its first line"
        line += part
    return line


async def measure_top(options: argparse.Namespace) -> None:
    """Run all rounds with a view in another process, and print them."""
    with tempfile.TemporaryDirectory(dir=options.dir) as directory:
        async with quorum(Path(directory), is_monitored=False, application=None) as (nodes, _):
            ports = [node.endpoints[0].port for node in nodes]
            view = [sys.executable, __file__, "--view", ",".join(map(str, ports)), "--every"]
            alone = partial(changes, ports, options.seconds, options.clients)

            async def viewed(every: float, load: Callable[[], Awaitable[Load]]) -> Load:
                process = await trio.lowlevel.open_process([*view, str(every)], stdout=subprocess.PIPE)
                try:
                    assert process.stdout is not None
                    assert await first_line(process.stdout) == b"refreshing\n"
                    return await load()
                finally:
                    process.kill()
                    with trio.CancelScope(shield=True):
                        await process.wait()

            async def idle() -> float:
                began = time.process_time()
                await trio.sleep(options.seconds)
                return time.process_time() - began

            await alone()
            ratios: list[tuple[float, float]] = []
            for number in range(options.rounds):
                if number % 2:
                    with_it, without = await viewed(options.every, alone), await alone()
                else:
                    without, with_it = await alone(), await viewed(options.every, alone)
                ratios.append((with_it[0] / without[0], with_it[1] / without[1]))
                rates = f"{without[0]:.0f} changes/s alone, {with_it[0]:.0f} with top; ratio {ratios[-1][0]:.3f}"
                times = f"{without[1]:.0f} µs of CPU time alone, {with_it[1]:.0f} with top; ratio {ratios[-1][1]:.3f}"
                print(f"round {number + 1}: {rates}; {times}")
            for what, found in zip(("change rates", "CPU times of a change"), zip(*ratios, strict=True), strict=True):
                spread = f"from {min(found):.3f} to {max(found):.3f}"
                print(f"top every {options.every:g} s: median ratio of {what} {statistics.median(found):.3f}, {spread}")
            taken = []
            for _ in range(options.rounds):
                unseen, seen = await idle(), await viewed(FREQUENT, idle)
                taken.append((seen - unseen) / (options.seconds / FREQUENT) * 1000)
            spread = f"from {min(taken):.2f} to {max(taken):.2f}"
            print(f"a refresh costs an idle quorum {statistics.median(taken):.2f} ms of CPU time, {spread}")


async def measure(options: argparse.Namespace) -> None:
    """Run all rounds, and print them."""
    with tempfile.TemporaryDirectory(dir=options.dir) as directory:
        async with AsyncExitStack() as stack:
            plain, _ = await stack.enter_async_context(quorum(Path(directory, "plain"), is_monitored=False))
            monitored, ports = await stack.enter_async_context(quorum(Path(directory, "monitored"), is_monitored=True))
            load = partial(commits, seconds=options.seconds, clients=options.clients, every=options.every)
            await load(plain, ports=[])
            await load(monitored, ports=ports)
            ratios = []
            for number in range(options.rounds):
                if number % 2:
                    with_it = await load(monitored, ports=ports)
                    without = await load(plain, ports=[])
                else:
                    without = await load(plain, ports=[])
                    with_it = await load(monitored, ports=ports)
                ratios.append(with_it[1] / without[1])
                rates = f"{without[0]:.0f} commits/s without, {with_it[0]:.0f} with"
                times = f"{without[1]:.0f} µs of CPU time without, {with_it[1]:.0f} with"
                print(f"round {number + 1}: {rates}; {times}; ratio {ratios[-1]:.3f}")
            spread = f"from {min(ratios):.3f} to {max(ratios):.3f}"
            print(f"median ratio of CPU times {statistics.median(ratios):.3f}, {spread}")
        async with quorum(Path(directory, "controllers"), is_monitored=True, application=None) as (nodes, ports):
            await nodes[0].wait_for_leader()
            taken = []
            for _ in range(SCRAPES):
                await trio.sleep(KEEP_SECONDS)
                before = time.process_time()
                size = await trio.to_thread.run_sync(scrape, ports[0])
                taken.append(time.process_time() - before)
            cpu_ms = statistics.median(taken) * 1000
            print(f"a scrape of {size} bytes takes {cpu_ms:.1f} ms of CPU time, client included")


def main() -> None:
    """Read the command line, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--every", type=float, default=1.0)
    parser.add_argument("--dir")
    parser.add_argument("--top", action="store_true")
    parser.add_argument("--view", metavar="PORTS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.view is not None:
        trio.run(refresh, [int(port) for port in options.view.split(",")], options.every)
    else:
        trio.run(measure_top if options.top else measure, options)


if __name__ == "__main__":
    main()
