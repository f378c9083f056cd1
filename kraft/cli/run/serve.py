"""`kraft serve`: runs one node from a Kafka properties file (Kafka: `kafka.Kafka`)."""

from __future__ import annotations

import click

from kraft.cli.config_file import with_config_file
from kraft.cli.run.log_output import LEVELS
from kraft.config import Config


@click.command(
    "serve",
    short_help="Run one node.",
    epilog="Example: kraft serve server.properties --override controller.quorum.append.linger.ms=0",
)
@with_config_file
@click.option("--override", "overrides", multiple=True, metavar="K=V", help="A setting that overrides the file.")
@click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics, /livez and /readyz there, in plain HTTP.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--protocol", metavar="FILE", help="Append the node's steps of the consensus protocol there, for TLC.")
@click.option("--until-stdin-closes", is_flag=True, hidden=True, help="Also stop when standard input ends.")
def serve_command(
    *,
    config_path: str,
    overrides: tuple[str, ...],
    metrics: str | None,
    log_level: str,
    log_format: str,
    protocol: str | None,
    until_stdin_closes: bool,
) -> None:
    """Run one node on its formatted directories until SIGTERM or Ctrl-C. CONFIG is a Kafka properties file.

    A leader transfers its leadership to the best successor before it stops. Each event is one line on stderr. SIGUSR1
    makes the log more verbose by one step, SIGUSR2 less; `kraft configs set broker-logger` changes it from afar.
    """
    if metrics is not None:
        overrides = (*overrides, f"kraft.metrics.listener={metrics}")
    from kraft.cli.run.node_process import serve

    config = Config.load(config_path, overrides)
    serve(
        config,
        log_level=log_level,
        log_format=log_format,
        protocol_file=protocol,
        until_stdin_closes=until_stdin_closes,
    )
