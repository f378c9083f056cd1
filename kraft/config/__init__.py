"""A node's settings: Kafka's `server.properties`, its keys and its defaults."""

from kraft.config.addresses import (
    PROTECTED_PROTOCOLS,
    ListenerSpec,
    QuorumVoter,
    join_host_port,
    parse_host_port,
    parse_listener,
    split_list,
)
from kraft.config.config import Config, FormatConfig
from kraft.config.errors import ConfigError, UsageError
from kraft.config.keys import configuration_table

__all__ = [
    "PROTECTED_PROTOCOLS",
    "Config",
    "ConfigError",
    "FormatConfig",
    "ListenerSpec",
    "QuorumVoter",
    "UsageError",
    "configuration_table",
    "join_host_port",
    "parse_host_port",
    "parse_listener",
    "split_list",
]
