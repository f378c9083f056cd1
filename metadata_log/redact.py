"""Hides secrets in records that are shown to people (Kafka: `MetadataNodeRedactionCriteria`)."""

from __future__ import annotations

import re
from typing import Final

from metadata_log.records.metadata import ConfigRecord, UserScramCredentialRecord
from metadata_log.serde.fields import Message

REDACTED: Final = "(redacted)"

_SECRET_CONFIG: Final = re.compile(
    r"(password|secret|secret\.key|jaas\.config|keystore\.key|certificate\.chain|truststore\.certificates)$"
)
"""Names of Kafka's configuration keys of type PASSWORD, with or without a listener's prefix."""


MAY_HOLD_SECRETS: Final = frozenset({UserScramCredentialRecord, ConfigRecord})
"""The records for which `secret_fields` is ever anything but empty."""


def is_secret_config(name: str) -> bool:
    """Whether the values of a configuration key are not for everybody's eyes."""
    return _SECRET_CONFIG.search(name) is not None


def secret_fields(record: Message) -> frozenset[str]:
    """The JSON names of the fields of a record that are not for everybody's eyes."""
    match record:
        case UserScramCredentialRecord():
            return frozenset({"salt", "storedKey", "serverKey"})
        case ConfigRecord(name=name) if is_secret_config(name):
            return frozenset({"value"})
        case _:
            return frozenset()


def redact(record: Message, fields: object) -> object:
    """The JSON form of a record with its secrets hidden."""
    secret = secret_fields(record)
    if not secret or not isinstance(fields, dict):
        return fields
    return {name: REDACTED if name in secret and value is not None else value for name, value in fields.items()}
