"""The output of `kraft quickstart`: a live table on a terminal, otherwise plain lines or JSON lines."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kraft.admin import QuorumDescription
from kraft.cli.run.tour import StepDone
from kraft.local.local_cluster import LocalCluster
from metadata_log.image import Broker, MetadataImage

PLAIN_LINE_SECONDS: Final = 10.0
"""The interval at which an unchanged status is printed again, without a terminal."""
_STEP_WIDTH: Final = 10


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
        brokers = f" and {len(cluster.brokers)} brokers" if cluster.brokers else ""
        click.echo(
            f"{len(cluster.controllers)} controllers{brokers} of cluster {cluster.cluster_id};"
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
        lag = leader.log_end_offset - end if leader is not None else 0
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
            f"{lag:,}" if end >= 0 else "",
            "" if facts is None else f"{facts['leads']:,}",
            "" if facts is None else f"{facts['inSync']:,} of {facts['replicas']:,}",
        )
    return Group(Text(_headline(quorum), style="bold"), table, Text("Ctrl-C stops them all.", style="dim"))
