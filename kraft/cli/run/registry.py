"""`kraft registry`: the schema registry of a cluster."""

from __future__ import annotations

import json
from functools import partial
from typing import Final

import click

from kraft.cli.cluster.brokers_of import Brokers, command_config_option, servers_option
from kraft.config import UsageError
from kraft.config.errors import CommandFailed

PORT: Final = 8081


@click.command("registry", short_help="Serve the schema registry's REST API.")
@servers_option
@command_config_option
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0 for any free port.")
@click.option("--topic", default="_schemas", show_default=True, help="The topic that holds everything registered.")
def registry_command(*, servers: str, command_config: str | None, host: str, port: int, topic: str) -> None:
    """Serve the REST API of the common schema registry until SIGTERM or Ctrl-C: subjects, versions, compatibility.

    Everything is in one compacted topic in that registry's format; run one registry for a topic. Once it serves, it
    prints one line: a JSON object with its url. There is no authentication: listen where only friends can connect.

    \b
    Example:
        kraft registry --bootstrap-server 127.0.0.1:9092
        kraft registry --bootstrap-server 127.0.0.1:9092 --port 0 --topic _schemas_of_tests
    """
    import trio

    from kraft.cli.cluster.brokers_of import Interrupted
    from kraft.client import Client
    from kraft.node.gc_freeze import freeze_survivors
    from kraft.registry.schemas import check_installed
    from kraft.registry.service import Registry

    try:
        check_installed()
    except ModuleNotFoundError as missing:
        raise CommandFailed(str(missing)) from missing

    async def serve(client: Client, scope: trio.CancelScope, interrupted: Interrupted) -> int:
        with scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(freeze_survivors)
                address = await nursery.start(partial(Registry(client, topic).run, host, port))
                click.echo(json.dumps({"event": "ready", "url": f"http://{address}"}))
        return 0

    try:
        Brokers.of(servers, command_config).run(serve)
    except OSError as failed:
        raise UsageError(str(failed), where="--port") from failed
