"""The settings of client telemetry (Kafka: `KafkaConfig.clientTelemetryMaxBytes`; KIP-714)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Annotated, Final

from msgspec import Struct

from kraft.config.errors import ConfigError
from kraft.config.key import Key
from kraft.config.metrics_settings import LISTENER
from kraft.config.settings_reader import SettingsReader

ENABLED: Final = "kraft.client.telemetry.enable"


def read_telemetry(reader: SettingsReader) -> bool:
    """Whether a broker takes the metrics of clients. Raises `ConfigError`."""
    return reader.flag(ENABLED)


def unseen_telemetry(reader: SettingsReader) -> Iterator[str]:
    """A warning if the metrics of clients are taken, and nobody can look at them."""
    if read_telemetry(reader) and not reader.text(LISTENER):
        yield f"{ENABLED}=true shows nothing without {LISTENER}, which has /metrics ({reader.source})"


class TelemetryConfig(Struct, frozen=True, kw_only=True):
    """Whether and how much a broker takes of the metrics of clients."""

    is_on: Annotated[bool, Key(ENABLED, read=read_telemetry)] = False
    """In Kafka a class in `metric.reporters` takes them, and without one the APIs are not there."""
    max_bytes: Annotated[int, Key("telemetry.max.bytes")] = 1 << 20
    """The most bytes of one push, compressed and uncompressed."""


def check_library(settings: TelemetryConfig) -> None:
    """Raise `ConfigError` if a broker is to take the metrics of clients, and cannot read them."""
    if settings.is_on and (find_spec("opentelemetry") is None or find_spec("opentelemetry.proto") is None):
        raise ConfigError(
            f"{ENABLED}=true: the library of OpenTelemetry's format is not installed",
            hint="It is the extra `telemetry`: pip install 'trio-kraft[telemetry]'.",
        )
