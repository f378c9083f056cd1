"""`kraft environment`: a properties file from environment variables, as in Kafka's container images."""

from __future__ import annotations

import os

import click
import javaproperties

from kraft.config.environment import settings_of
from kraft.config.properties import read_properties


@click.command(
    "environment",
    short_help="Print the properties in KAFKA_… variables.",
    epilog="Example: kraft environment base.properties >server.properties",
)
@click.argument("file", required=False, metavar="[FILE]")
def environment_command(file: str | None) -> None:
    """Print a properties file with the settings in the variables KAFKA_…, as Kafka's images read them.

    KAFKA_NODE_ID is node.id: one underscore is a dot, two are an underscore, three are a hyphen. FILE gives the other
    settings; a variable wins over the file. The output has every secret of the variables: keep it private.
    """
    settings = {} if file is None else javaproperties.loads(read_properties(file).decode("utf-8"))
    settings |= settings_of(os.environ)
    click.echo(javaproperties.dumps(settings, timestamp=False, sort_keys=True), nl=False)
