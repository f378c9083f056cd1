"""The settings of the metrics listener."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Struct

from kraft.config.addresses import parse_listener
from kraft.config.key import Key
from kraft.config.settings_reader import SettingsReader

LISTENER: Final = "kraft.metrics.listener"
DIALECT: Final = "kraft.metrics.dialect"
DIALECTS: Final = ("jmx-exporter", "strimzi-jmx")
LOOPBACK: Final = "127.0.0.1"


def read_metrics_listener(reader: SettingsReader) -> tuple[str, int] | None:
    """The host and the port of the metrics listener; None if it is off. Raises `ConfigError`."""
    text = reader.text(LISTENER)
    if not text:
        return None
    host_port = text if ":" in text else f":{text}"
    try:
        spec = parse_listener(f"METRICS://{host_port}")
    except ValueError:
        why = "this is neither host:port nor a port"
        raise reader.bad(LISTENER, why, hint="Example: kraft.metrics.listener=127.0.0.1:9404") from None
    return spec.host or LOOPBACK, spec.port


def read_metrics_dialect(reader: SettingsReader) -> str:
    """The names of Kafka's metrics. Raises `ConfigError`."""
    word = reader.text(DIALECT)
    if word not in DIALECTS:
        raise reader.bad(DIALECT, f"allowed is {' or '.join(DIALECTS)}")
    return word


class MetricsSettings(Struct, frozen=True, kw_only=True):
    """The listener of metrics, and the names of Kafka's metrics there."""

    listener: Annotated[tuple[str, int] | None, Key(LISTENER, read=read_metrics_listener)] = None
    """The host and the port; None if it is off."""
    dialect: Annotated[str, Key(DIALECT, read=read_metrics_dialect)] = DIALECTS[0]
