"""Hides secrets in displayed records (Kafka: `MetadataNodeRedactionCriteria`, `KafkaConfigSchema`)."""

from __future__ import annotations

import re
from typing import Final, overload

from metadata_log.records.config_keys import is_shown_key
from metadata_log.records.metadata import ConfigRecord, UserScramCredentialRecord
from metadata_log.serde.fields import Message

REDACTED: Final = "(redacted)"

_SECRET_IN_VALUE: Final = r"""(?ix)
    (?:passw(?:or)?d | passphrase | secret | token | credentials? | key) [\w.-]* ["']? \s* [=:]
    | ://[^/\s:@]*:[^/\s@]+@
    | -----BEGIN\ [A-Z ]*KEY
"""
"""The pattern of a secret inside the value of another key: `clientSecret=…`, `"apiKey": …`, `//user:password@host`."""


MAY_HOLD_SECRETS: Final = frozenset({UserScramCredentialRecord, ConfigRecord})
"""The records with possibly non-empty `secret_fields`."""


def is_secret_config(resource_type: int, key: str, value: str | None = None) -> bool:
    """Whether a value of a configuration key is hidden.

    `resource_type` is a code of `ConfigResource.Type`. As in Kafka (`KafkaConfigSchema.isSensitive`), a key of type
    PASSWORD is sensitive, and so is a key that Kafka 4.4.0 does not define for this type of resource. A `value` of
    another key is hidden too if it contains a credential.
    """
    if not is_shown_key(resource_type, key):
        return True
    return value is not None and re.search(_SECRET_IN_VALUE, value) is not None


@overload
def shown_config(resource_type: int, key: str, value: str, *, show_secrets: bool) -> str: ...
@overload
def shown_config(resource_type: int, key: str, value: None, *, show_secrets: bool) -> None: ...
@overload
def shown_config(resource_type: int, key: str, value: str | None, *, show_secrets: bool) -> str | None: ...
def shown_config(resource_type: int, key: str, value: str | None, *, show_secrets: bool) -> str | None:
    """The displayed configuration value: the value, or `REDACTED`; None without a value."""
    if value is None or show_secrets or not is_secret_config(resource_type, key, value):
        return value
    return REDACTED


def secret_fields(record: Message) -> frozenset[str]:
    """The JSON names of the secret fields of a record."""
    match record:
        case UserScramCredentialRecord():
            return frozenset({"salt", "storedKey", "serverKey"})
        case ConfigRecord(resource_type=resource_type, name=name, value=value):
            return frozenset({"value"}) if is_secret_config(resource_type, name, value) else frozenset()
        case _:
            return frozenset()


def redact(record: Message, fields: object) -> object:
    """The JSON form of a record with hidden secrets."""
    secret = secret_fields(record)
    if not secret or not isinstance(fields, dict):
        return fields
    return {name: REDACTED if name in secret and value is not None else value for name, value in fields.items()}
