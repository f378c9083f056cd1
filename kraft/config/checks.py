"""Checks of settings that this node passes on: topic defaults, and bounds that depend on each other."""

from __future__ import annotations

import re
from typing import Final

from kraft.config.addresses import split_list
from kraft.config.keys import INT_MAX, LONG_MAX, NUMBERS
from kraft.config.settings_reader import SettingsReader
from kraft.config.topic_synonyms import TOPIC_SYNONYMS, Synonym

_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+")


def check_queued_bytes(reader: SettingsReader) -> None:
    """Refuse a bound below one request, which would stop every connection (Kafka: `KafkaConfig.validateValues`)."""
    key, largest = "queued.max.request.bytes", "socket.request.max.bytes"
    queued, request = reader.number(key, NUMBERS[key]), reader.number(largest, NUMBERS[largest])
    if 0 < queued < request:
        raise reader.bad(key, f"the value is less than {largest}, which is {request}")


def check_topic_settings(reader: SettingsReader) -> None:
    """Refuse invalid topic defaults, which every description of a topic shows (Kafka: the types and validators of
    `ServerLogConfigs`).
    """
    for synonym in (one for synonyms in TOPIC_SYNONYMS.values() for one in synonyms):
        if synonym.name in reader.settings:
            _check_topic_setting(reader, synonym)


_BACKGROUND: Final = {
    "log.cleaner.backoff.ms": (0, LONG_MAX),
    "log.cleaner.dedupe.buffer.size": (1, LONG_MAX),
    "log.cleaner.threads": (0, INT_MAX),
    "replica.alter.log.dirs.io.max.bytes.per.second": (1, LONG_MAX),
    "producer.id.expiration.check.interval.ms": (1, INT_MAX),
    "producer.id.expiration.ms": (1, INT_MAX),
}
"""The ranges of the settings of a broker's tasks (Kafka: `CleanerConfig`, `TransactionLogConfig`)."""


def check_background_settings(reader: SettingsReader) -> None:
    """Refuse invalid settings of the cleaner, and of the expiry of producers."""
    for key, (least, most) in _BACKGROUND.items():
        if key in reader.settings:
            reader.whole_number(key, least, most)
    key = "log.cleaner.io.buffer.load.factor"
    if key in reader.settings:
        value = reader.settings[key].value
        if not _DECIMAL.fullmatch(value) or not 0 < float(value) <= 1:
            raise reader.bad(key, "allowed is a number above 0, up to 1")
    key = "log.cleaner.enable"
    if key in reader.settings:
        reader.as_flag(key, reader.settings[key].value)


def _check_topic_setting(reader: SettingsReader, synonym: Synonym) -> None:
    key, value = synonym.name, reader.settings[synonym.name].value
    match synonym.type:
        case "INT" | "LONG":
            reader.whole_number(key, -LONG_MAX, LONG_MAX)
        case "DOUBLE" if not _DECIMAL.fullmatch(value):
            raise reader.bad(key, "the value is not a number")
        case "BOOLEAN":
            reader.as_flag(key, value)
        case "STRING" | "LIST" if synonym.words:
            for word in split_list(value) if synonym.type == "LIST" else (value,):
                if word not in synonym.words:
                    raise reader.bad(key, f"allowed is {' or '.join(synonym.words)}")
