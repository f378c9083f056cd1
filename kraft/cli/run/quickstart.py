"""`kraft quickstart`: runs a whole cluster on this machine, to explore or for a scripted tour."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from pathlib import Path
from typing import Final

import click
import trio

from kraft.admin import AdminClient, AdminError, QuorumDescription, open_admin
from kraft.cli.run.quickstart_view import View
from kraft.cli.run.record_tour import RecordTour
from kraft.cli.run.tour import Tour
from kraft.client import open_client
from kraft.config import UsageError
from kraft.config.errors import CommandFailed
from kraft.local.local_cluster import LocalCluster, run_cluster
from kraft.observer.live_image import read_image
from metadata_log.image import MetadataImage

RunCluster = Callable[[], AbstractAsyncContextManager[LocalCluster]]
"""Starts all nodes, and stops them at the end."""
INTERRUPTED: Final = 130
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
    help="Run the tour instead: write and read records, kill the leading controller, then a broker, verify.",
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
    are written with acks=all and read while a controller and a broker are killed. The exit code is 0 only if every
    step succeeds.
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
            code = trio.run(_interruptible, lambda: _live(cluster, view), 0)
        else:
            seconds = tour_seconds
            code = trio.run(_interruptible, lambda: _tour(cluster, view, seconds), INTERRUPTED)
    finally:
        if directory is None and code != 1:
            shutil.rmtree(home)
        elif directory is None:
            click.echo(f"The files are kept for you to look at: {home}", err=True)
    if code:
        raise CommandFailed(exit_code=code)


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
