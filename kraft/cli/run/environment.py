"""`kraft environment`: a properties file from environment variables, as in Kafka's container images (Kafka:
`KafkaDockerWrapper`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import click
import javaproperties

from kraft.config.properties import read_properties

PREFIX: Final = "KAFKA_"
NOT_SETTINGS: Final = frozenset(
    {
        "KAFKA_VERSION",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
    }
)
"""Variables of Kafka's images that are no settings (`KafkaDockerWrapper.ExcludeServerPropertiesEnv`)."""


def settings_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings in environment variables, by key.

    `KAFKA_NODE_ID` is `node.id`: one underscore is a dot, two are an underscore, three are a hyphen.
    """
    return {
        key_of(name): value
        for name, value in environment.items()
        if name.startswith(PREFIX) and name not in NOT_SETTINGS and name != PREFIX
    }


def key_of(name: str) -> str:
    """The key of a variable, in the order of Kafka's replacements."""
    dots = name.removeprefix(PREFIX).lower().replace("_", ".")
    return dots.replace("...", "-").replace("..", "_")


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
