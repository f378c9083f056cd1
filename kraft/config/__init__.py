"""A node's settings: Kafka's `server.properties`, its keys and its defaults.

Names are imported on first access (PEP 562), so that a command that reads no settings does not load their table.
"""

from typing import TYPE_CHECKING

from metadata_log.lazy_names import lazy_names

if TYPE_CHECKING:
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
    from kraft.config.embedded import NodeSettings, Sasl, Tls
    from kraft.config.errors import ConfigError, UsageError
    from kraft.config.keys import configuration_table
else:
    _HOMES = {
        "PROTECTED_PROTOCOLS": "kraft.config.addresses",
        "Config": "kraft.config.config",
        "ConfigError": "kraft.config.errors",
        "FormatConfig": "kraft.config.config",
        "ListenerSpec": "kraft.config.addresses",
        "NodeSettings": "kraft.config.embedded",
        "QuorumVoter": "kraft.config.addresses",
        "Sasl": "kraft.config.embedded",
        "Tls": "kraft.config.embedded",
        "UsageError": "kraft.config.errors",
        "configuration_table": "kraft.config.keys",
        "join_host_port": "kraft.config.addresses",
        "parse_host_port": "kraft.config.addresses",
        "parse_listener": "kraft.config.addresses",
        "split_list": "kraft.config.addresses",
    }
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)


__all__ = [
    "PROTECTED_PROTOCOLS",
    "Config",
    "ConfigError",
    "FormatConfig",
    "ListenerSpec",
    "NodeSettings",
    "QuorumVoter",
    "Sasl",
    "Tls",
    "UsageError",
    "configuration_table",
    "join_host_port",
    "parse_host_port",
    "parse_listener",
    "split_list",
]
