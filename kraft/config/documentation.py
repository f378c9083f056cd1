"""Kafka's texts about its settings, for clients that ask DescribeConfigs for them.

`tests/support/interop/settings_table.py` takes them from Kafka's jars, together with the table of settings.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

_FILE: Final = "kafka_documentation.json.gz"


def documentation(kind: str, key: str) -> str | None:
    """The text about a setting; None for a key that Kafka does not define, or that has the prefix of a listener.

    Args:
        kind: Whose setting: broker, topic, group or client-metrics.
        key: The key.
    """
    return _texts()[kind].get(key)


@cache
def _texts() -> Mapping[str, Mapping[str, str]]:
    """All of them, which are unpacked for the first client that asks."""
    packed = files(__package__).joinpath(_FILE).read_bytes()
    return msgspec.json.decode(gzip.decompress(packed), type=dict[str, dict[str, str]])
