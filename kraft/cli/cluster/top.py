"""`kraft top`: a live view of a quorum, its brokers and its partitions."""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import Final

import click
from msgspec.structs import replace

from kraft.admin import AdminClient
from kraft.cli.cluster.administration import Cluster, on_a_cluster
from kraft.cli.cluster.top_thread import now_ms
from kraft.cli.text import echo, echo_lines
from kraft.config import UsageError, parse_host_port
from kraft.operate.top.layout import Settings, layout, text_lines
from kraft.operate.top.model import Model, Sort, facts
from kraft.operate.top.poll import LIVE_TIMEOUT_MS, Poller
from kraft.operate.top.samples import Sample
from transport.interface import Endpoint

WIDTH: Final = 80
"""The width where there is no terminal."""
NO_LEADER: Final = 1
"""The exit code of a single screen without a leader."""


@click.command(
    "top",
    short_help="A live view of quorum, brokers, partitions.",
    epilog="Example: kraft top --bootstrap-controller 127.0.0.1:9093 --interval 2",
)
@click.option(
    "--interval",
    default=1.0,
    show_default=True,
    type=click.FloatRange(min=0.2),
    metavar="SECONDS",
    help="The pause between two refreshes.",
)
@click.option("--once", is_flag=True, help="Print one screen as plain text; the same as output into a pipe.")
@click.option(
    "--metrics",
    "metrics",
    metavar="H:P[,H:P]",
    help="Metrics listeners of nodes of this software, for FSYNC and TURN; read every 5 seconds at most.",
)
@click.option(
    "--sort",
    type=click.Choice([one.value for one in Sort]),
    default=Sort.ID.value,
    show_default=True,
    help="The order of replicas and brokers: by id, or with the worst first.",
)
@on_a_cluster
def top_command(*, interval: float, once: bool, metrics: str | None, sort: str, cluster: Cluster) -> None:
    """Show the quorum of this program's or Apache Kafka's controllers, refreshed live: roles, epochs, log ends and lag,
    elections since the start, brokers, and the partitions without a leader or below min.insync.replicas.

    A refresh costs the leader two requests: DescribeQuorum, and a Fetch of the new metadata records, since controllers
    describe neither brokers nor partitions. Elections and lost connections do not end the view. With --bootstrap-server
    a broker of Apache Kafka names the controllers at the start, and the view asks these.

    FSYNC is the mean time of the log's fsyncs, or the age of one that has not returned, and TURN is the longest step of
    the event loop. Kafka's protocol has neither, so that both are "-" without --metrics, and for Apache Kafka's nodes.

    Keys: q ends, p pauses, s changes the order, r refreshes now. With TERM=dumb the screens follow each other as plain
    text. With --once, --json or into a pipe, the exit code is 1 if no leader answers.
    """
    listeners = _listeners(metrics)
    settings = Settings(sort=Sort(sort))
    if cluster.as_json or once or not sys.stdout.isatty():
        sys.exit(_print_once(cluster, listeners, settings))
    live = replace(cluster, timeout_ms=min(cluster.timeout_ms, LIVE_TIMEOUT_MS))
    settings = replace(settings, interval_s=interval)
    if os.environ.get("TERM", "dumb") in {"", "dumb", "unknown"} or not sys.stdin.isatty():
        _print_screens(live, listeners, settings)
        return
    # Loaded here: no other command needs the library of the screen.
    from kraft.cli.cluster.top_screen import show_screen

    sys.exit(show_screen(live, listeners, settings))


def _listeners(text: str | None) -> tuple[Endpoint, ...]:
    try:
        return tuple(Endpoint(*parse_host_port(part)) for part in (text or "").split(",") if part.strip())
    except ValueError as bad:
        raise UsageError(str(bad), where="--metrics", hint="For example 127.0.0.1:9404.") from bad


def _print_once(cluster: Cluster, listeners: tuple[Endpoint, ...], settings: Settings) -> int:
    """Print one screen, or one JSON object; returns the exit code."""
    model = Model()

    async def look(admin: AdminClient) -> None:
        await Poller(admin, model.take, clock_ms=now_ms, listeners=listeners).once()

    cluster.ask(look, shows_states=True)
    view = model.view(settings.sort)
    assert view is not None
    if cluster.as_json:
        echo(json.dumps(facts(view), ensure_ascii=False))
    else:
        echo_lines(_lines(model, settings))
    return NO_LEADER if view.leader_id is None else 0


def _print_screens(cluster: Cluster, listeners: tuple[Endpoint, ...], settings: Settings) -> None:
    """Print a screen after each refresh, until Ctrl-C."""
    model = Model()

    def show(sample: Sample) -> None:
        model.take(sample)
        echo_lines([*_lines(model, settings), ""])

    async def look(admin: AdminClient) -> None:
        assert settings.interval_s is not None
        await Poller(admin, show, clock_ms=now_ms, listeners=listeners).run(settings.interval_s)

    cluster.ask(look, shows_states=True)


def _lines(model: Model, settings: Settings) -> list[str]:
    width = shutil.get_terminal_size((WIDTH, 24)).columns
    screen = layout(model.view(settings.sort), replace(settings, width=width))
    return text_lines((*screen.head, *screen.body))
