"""`kraft quickstart`: runs a whole cluster on this machine, to explore or for a scripted tour."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, aclosing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import trio
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kraft.admin import AdminClient, AdminError, QuorumDescription, open_admin
from kraft.cli.run.record_tour import RecordTour
from kraft.cli.run.tour import StepDone, Tour
from kraft.cli.text import count
from kraft.client import open_client
from kraft.config import UsageError
from kraft.config.errors import INTERRUPTED, CommandFailed
from kraft.local.local_cluster import LocalCluster, run_cluster
from kraft.observer.live_image import read_image
from kraft.operate.interrupts import run_tasks
from metadata_log.image import Broker, MetadataImage

PLAIN_LINE_SECONDS: Final = 10.0
"""The interval at which an unchanged status is printed again, without a terminal."""
_STEP_WIDTH: Final = 10
_HOW_TO_END: Final = "Ctrl-C stops them all."


class View:
    """The output of one quickstart. `kept` states whether the files are kept at the end."""

    def __init__(self, *, as_json: bool, kept: bool) -> None:
        self._as_json = as_json
        self._kept = kept
        self._on_terminal = sys.stdout.isatty() and not as_json
        self._colour = self._on_terminal and not os.environ.get("NO_COLOR")
        self._live: Live | None = None
        self._printed: object = None
        self._printed_at = float("-inf")

    def cluster(self, cluster: LocalCluster) -> None:
        """Print the locations of the cluster's files."""
        if self._as_json:
            nodes = [
                {"id": node.id, "role": node.role, "pid": node.pid, "endpoint": str(node.endpoint)}
                for node in cluster.nodes
            ]
            self._line(
                "cluster",
                clusterId=cluster.cluster_id,
                directory=str(cluster.home),
                bootstrapController=cluster.bootstrap,
                bootstrapServer=cluster.bootstrap_servers,
                nodes=nodes,
            )
            return
        at_end = "kept at the end" if self._kept else "removed at the end; --dir DIR keeps them"
        brokers = f" and {count(len(cluster.brokers), 'broker')}" if cluster.brokers else ""
        click.echo(
            f"{count(len(cluster.controllers), 'controller')}{brokers} of cluster {cluster.cluster_id};"
            f" files in {cluster.home} ({at_end})"
        )
        for node in cluster.nodes:
            click.echo(f"  {node.role} {node.id}  pid {node.pid}  {node.endpoint}  log {node.log_path}")
        click.echo("Ask it with our tools or with Kafka's:")
        click.echo(f"  kraft quorum status --bootstrap-controller {cluster.bootstrap}")
        click.echo(f"  kafka-metadata-quorum.sh --bootstrap-controller {cluster.bootstrap} describe --status")
        if cluster.brokers:
            click.echo("Write lines, and read them:")
            click.echo(f"  kraft produce TOPIC --bootstrap-server {cluster.bootstrap_servers}")
            click.echo(f"  kraft consume TOPIC --follow --bootstrap-server {cluster.bootstrap_servers}")
        click.echo()

    def ended(self, home: Path) -> None:
        """Say what became of the files of a cluster that was shown until Ctrl-C."""
        if not self._as_json:
            files = f"kept in {home}" if self._kept else f"removed from {home}"
            click.echo(f"All nodes have stopped. The files are {files}.")

    def step(self, done: StepDone) -> None:
        """Print one finished step of the tour."""
        if self._as_json:
            facts = {"step": done.step, "ok": done.held, "seconds": round(done.seconds, 3), **done.facts}
            self._line("step", **facts, text=done.text)
            return
        mark = self._mark(done.held)
        click.echo(f"{mark} {done.step:<{_STEP_WIDTH}} {done.text}", color=self._colour)

    def verdict(self, held: bool) -> None:
        """Print the result of the tour."""
        if self._as_json:
            self._line("verdict", ok=held)
        else:
            click.echo("Every step held." if held else "The tour ends here: this step did not hold.")

    def screen(self) -> AbstractContextManager[object]:
        """A context in which `status` updates its table in place, if this is a terminal."""
        if not self._on_terminal:
            if not self._as_json:
                click.echo(_HOW_TO_END)
            return nullcontext()
        console = Console(no_color=not self._colour)
        self._live = Live(console=console, auto_refresh=False)
        return self._live

    def status(self, cluster: LocalCluster, quorum: QuorumDescription | None, image: MetadataImage | None) -> None:
        """Print the current quorum and metadata; None if no leader answers, or there are no brokers."""
        if self._live is not None:
            self._live.update(_table(cluster, quorum, image), refresh=True)
            return
        running = [node.id for node in cluster.nodes if node.is_running]
        brokers = {} if image is None else {node.id: broker_facts(image, node.id) for node in cluster.brokers}
        current = (None if quorum is None else (quorum.leader_id, quorum.leader_epoch), running, brokers)
        now = time.monotonic()
        if current == self._printed and now - self._printed_at < PLAIN_LINE_SECONDS:
            return
        self._printed, self._printed_at = current, now
        if self._as_json:
            self._line("status", running=running, **_facts(quorum), brokers=brokers)
        else:
            states = "".join(f"; broker {one}: {_in_words(facts)}" for one, facts in brokers.items())
            click.echo(f"{_headline(quorum)}; running: {', '.join(map(str, running)) or 'none'}{states}")

    def _line(self, event: str, **facts: Any) -> None:
        click.echo(json.dumps({"event": event, **facts}))
        sys.stdout.flush()

    def _mark(self, held: bool) -> str:
        mark, plain, colour = ("✓", "ok    ", "green") if held else ("✗", "FAILED", "red")
        try:
            mark.encode(sys.stdout.encoding or "ascii")
        except UnicodeEncodeError:
            mark = plain
        return click.style(mark, fg=colour, bold=True)


def _headline(quorum: QuorumDescription | None) -> str:
    if quorum is None:
        return "no leader"
    # A new leader does not know its high watermark before a majority has fetched beyond the start of its epoch.
    high_watermark = quorum.high_watermark if quorum.high_watermark >= 0 else "not known yet"
    return f"leader {quorum.leader_id}, epoch {quorum.leader_epoch}, high watermark {high_watermark}"


def _facts(quorum: QuorumDescription | None) -> dict[str, Any]:
    if quorum is None:
        return {"leaderId": -1}
    return {
        "leaderId": quorum.leader_id,
        "leaderEpoch": quorum.leader_epoch,
        "highWatermark": quorum.high_watermark,
    }


def broker_facts(image: MetadataImage, broker_id: int) -> dict[str, Any]:
    """The state of a broker, and its number of replicas, of those in sync, and of leaderships."""
    broker = image.brokers.by_id.get(broker_id)
    partitions = [one for name in image.topics for one in image.topics[name].partitions]
    return {
        "state": "not registered" if broker is None else _state(broker),
        "replicas": sum(broker_id in one.replicas for one in partitions),
        "inSync": sum(broker_id in one.isr for one in partitions),
        "leads": sum(broker_id == one.leader for one in partitions),
    }


def _state(broker: Broker) -> str:
    if broker.fenced:
        return "fenced"
    return "stopping" if broker.in_controlled_shutdown else "unfenced"


def _in_words(facts: dict[str, Any]) -> str:
    return f"{facts['state']}, leads {facts['leads']}, in sync {facts['inSync']} of {facts['replicas']}"


def _table(cluster: LocalCluster, quorum: QuorumDescription | None, image: MetadataImage | None) -> Group:
    members = {one.id: one for one in (*quorum.voters, *quorum.observers)} if quorum is not None else {}
    leader = members.get(quorum.leader_id) if quorum is not None else None
    headers = ("node", "role", "address", "pid", "log end", "lag", "leads", "in sync")
    table = Table(*headers, box=None, padding=(0, 2, 0, 0))
    for node in cluster.nodes:
        member = members.get(node.id)
        end = member.log_end_offset if member is not None else -1
        lag = f"{leader.log_end_offset - end:,}" if leader is not None and end >= 0 else ""
        facts = broker_facts(image, node.id) if image is not None and node in cluster.brokers else None
        role = "leader" if leader is not None and leader.id == node.id else "follower"
        if node in cluster.brokers:
            role = "broker" if facts is None else f"broker, {facts['state']}"
        table.add_row(
            str(node.id),
            role if node.is_running else Text(node.ending(), style="red"),
            str(node.endpoint),
            str(node.pid or ""),
            f"{end:,}" if end >= 0 else "",
            lag,
            "" if facts is None else f"{facts['leads']:,}",
            "" if facts is None else f"{facts['inSync']:,} of {facts['replicas']:,}",
        )
    return Group(Text(_headline(quorum), style="bold"), table, Text(_HOW_TO_END, style="dim"))


RunCluster = Callable[[], AbstractAsyncContextManager[LocalCluster]]
"""Starts all nodes, and stops them at the end."""
TOUR_CONTROLLERS: Final = 3
REFRESH_SECONDS: Final = 0.5
ASK_MS: Final = 2000
NO_LIMIT_MS: Final = 86_400_000


@click.command(
    "quickstart",
    short_help="A cluster on this machine in one line.",
    epilog="Example: kraft quickstart --for 60",
)
@click.option("--controllers", default=3, show_default=True, type=click.IntRange(1, 9), help="How many controllers.")
@click.option("--brokers", default=3, show_default=True, type=click.IntRange(0, 9), help="How many brokers.")
@click.option(
    "--dir", "directory", type=click.Path(file_okay=False), help="Keep the files here; else they are removed."
)
@click.option(
    "--for",
    "tour_seconds",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="Run the tour instead: write records, read them alone and in a group, kill the leading controller, then the "
    "group's coordinator, verify.",
)
@click.option(
    "--port-base", type=click.IntRange(1, 65_000), help="Node N listens on this port + N; else on free ports."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def quickstart_command(
    *,
    controllers: int,
    brokers: int,
    directory: str | None,
    tour_seconds: float | None,
    port_base: int | None,
    as_json: bool,
) -> None:
    """Run controllers and brokers on this machine, over real TCP and with real files, each in a process of its own.

    The brokers hold data: `kraft produce` and any client of Kafka write to them. Without --for the command shows the
    cluster and its addresses until Ctrl-C, for use with Kafka's own tools. With --for it runs a scripted tour: records
    are written with acks=all and read, also by a group of two, while a controller and the group's coordinator are
    killed. The exit code is 0 only if every step succeeds.
    """
    if tour_seconds is not None and controllers < TOUR_CONTROLLERS:
        raise UsageError(
            f"the tour needs {TOUR_CONTROLLERS} controllers to survive the loss of one", where="--controllers"
        )
    home = Path(directory) if directory is not None else Path(tempfile.mkdtemp(prefix="kraft-quickstart-"))
    cluster = partial(run_cluster, home, controllers=controllers, brokers=brokers, port_base=port_base)
    view = View(as_json=as_json, kept=directory is not None)
    code = 1
    try:
        if tour_seconds is None:
            code = run_tasks(_interruptible, lambda: _live(cluster, view), 0)
        else:
            seconds = tour_seconds
            code = run_tasks(_interruptible, lambda: _tour(cluster, view, seconds), INTERRUPTED)
    finally:
        if directory is None and code != 1:
            shutil.rmtree(home)
        elif directory is None:
            click.echo(f"The files are kept for you to look at: {home}", err=True)
    if code:
        raise CommandFailed(exit_code=code)
    if tour_seconds is None:
        view.ended(home)


async def _interruptible(job: Callable[[], Awaitable[int]], interrupted: int) -> int:
    """Run the job until its end or a signal; returns the job's exit code, or `interrupted`."""
    code = interrupted
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                async for _ in signals:
                    nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            code = await job()
            nursery.cancel_scope.cancel()
    return code


async def _tour(run: RunCluster, view: View, seconds: float) -> int:
    held = True
    prefix = f"tour-{time.time_ns() // 1_000_000:x}"
    async with run() as cluster:
        view.cluster(cluster)
        endpoints = [node.endpoint for node in cluster.controllers]
        async with (
            open_admin(endpoints, client_id="kraft-quickstart", timeout_ms=NO_LIMIT_MS) as admin,
            open_client([node.endpoint for node in cluster.brokers], client_id="kraft-quickstart") as client,
            trio.open_nursery() as nursery,
        ):
            records = None
            if cluster.brokers:
                records = RecordTour(admin, client, f"{prefix}-records", brokers=len(cluster.brokers))
                nursery.start_soon(records.run)
            async with aclosing(Tour(cluster, admin, prefix, records).run(seconds)) as steps:
                async for done in steps:
                    view.step(done)
                    held = held and done.held
            nursery.cancel_scope.cancel()
    view.verdict(held)
    return 0 if held else 1


async def _live(run: RunCluster, view: View) -> int:
    async with run() as cluster:
        view.cluster(cluster)
        endpoints = [node.endpoint for node in cluster.controllers]
        async with open_admin(endpoints, client_id="kraft-quickstart", timeout_ms=ASK_MS) as admin:
            with view.screen():
                while any(node.is_running for node in cluster.nodes):
                    quorum = await _ask(admin)
                    pause = REFRESH_SECONDS
                    image = None
                    if quorum is not None:
                        asked_at = trio.current_time()
                        image = await _metadata(cluster, admin)
                        # Reading takes longer with a longer log, so reading gets a tenth of the time.
                        pause = max(pause, 9 * (trio.current_time() - asked_at))
                    view.status(cluster, quorum, image)
                    await trio.sleep(pause)
        cluster.check()
    return 0


async def _metadata(cluster: LocalCluster, admin: AdminClient) -> MetadataImage | None:
    """The state of the brokers; None if there are none, or no controller answers."""
    if not cluster.brokers:
        return None
    try:
        return await read_image(admin)
    except AdminError:
        return None


async def _ask(admin: AdminClient) -> QuorumDescription | None:
    try:
        return await admin.describe_quorum()
    except AdminError:
        return None
