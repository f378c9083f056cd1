"""Hides secrets in records that are shown to people (Kafka: `MetadataNodeRedactionCriteria`, `KafkaConfigSchema`)."""

from __future__ import annotations

import re
from typing import Final, overload

from metadata_log.config_keys import is_shown_key
from metadata_log.records.metadata import ConfigRecord, UserScramCredentialRecord
from metadata_log.serde.fields import Message

REDACTED: Final = "(redacted)"

_SECRET_IN_VALUE: Final = re.compile(
    r"""
    (?:passw(?:or)?d | passphrase | secret | token | credentials? | key) [\w.-]* ["']? \s* [=:]
    | ://[^/\s:@]*:[^/\s@]+@
    | -----BEGIN\ [A-Z ]*KEY
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""What a secret looks like in the value of another key: `clientSecret=…`, `"apiKey": …`, `//user:password@host`."""


MAY_HOLD_SECRETS: Final = frozenset({UserScramCredentialRecord, ConfigRecord})
"""The records for which `secret_fields` is ever anything but empty."""


def is_secret_config(resource_type: int, key: str, value: str | None = None) -> bool:
    """Whether a value of a configuration key is hidden.

    `resource_type` is a code of `ConfigResource.Type`. As in Kafka (`KafkaConfigSchema.isSensitive`), a key of type
    PASSWORD is sensitive, and a key that Kafka 4.3.1 does not know for this type of resource. A `value` of a known key
    is hidden, too, if a credential stands in it.
    """
    if not is_shown_key(resource_type, key):
        return True
    return value is not None and _SECRET_IN_VALUE.search(value) is not None


@overload
def shown_config(resource_type: int, key: str, value: str, *, show_secrets: bool) -> str: ...
@overload
def shown_config(resource_type: int, key: str, value: None, *, show_secrets: bool) -> None: ...
@overload
def shown_config(resource_type: int, key: str, value: str | None, *, show_secrets: bool) -> str | None: ...
def shown_config(resource_type: int, key: str, value: str | None, *, show_secrets: bool) -> str | None:
    """What is shown of a configuration value: the value, or `REDACTED`; None where there is no value."""
    if value is None or show_secrets or not is_secret_config(resource_type, key, value):
        return value
    return REDACTED


def secret_fields(record: Message) -> frozenset[str]:
    """The JSON names of the fields of a record that are not for everybody's eyes."""
    match record:
        case UserScramCredentialRecord():
            return frozenset({"salt", "storedKey", "serverKey"})
        case ConfigRecord(resource_type=resource_type, name=name, value=value):
            return frozenset({"value"}) if is_secret_config(resource_type, name, value) else frozenset()
        case _:
            return frozenset()


def redact(record: Message, fields: object) -> object:
    """The JSON form of a record with its secrets hidden."""
    secret = secret_fields(record)
    if not secret or not isinstance(fields, dict):
        return fields
    return {name: REDACTED if name in secret and value is not None else value for name, value in fields.items()}
