"""Settings in environment variables, as in Kafka's container images (Kafka: `KafkaDockerWrapper`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
