"""Hides the secrets of messages, records and batches that `kraft decode` prints (Kafka: `RequestConvertToJson` and the
`toString` of requests with credentials).
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final

from metadata_log.errors import MetadataLogError
from metadata_log.records import RECORD_TYPES, decode_record
from metadata_log.records.batch import scan
from metadata_log.records.config_keys import BROKER, TOPIC
from metadata_log.records.frame import peek_type
from metadata_log.records.record import records
from metadata_log.records.redact import MAY_HOLD_SECRETS, REDACTED, is_secret_config, redact, secret_fields
from metadata_log.serde import Message
from transport.protocol import messages

Json = Any
_Hide = Callable[[Json], Json]
"""The replacement for a secret value other than null."""


def _hidden(value: Json) -> Json:
    return REDACTED


def _shown_records(value: Json) -> Json:
    """Record batches in base64; hidden if a record holds a secret, or may hold one and cannot be decoded."""
    try:
        for batch in scan(base64.b64decode(value)):
            if any(redacted_value(record.value) == REDACTED for record in records(batch)):
                return REDACTED
    except MetadataLogError:
        return REDACTED
    return value


HIDDEN_FIELDS: Final[dict[type[Message], dict[str, _Hide]]] = {
    messages.AlterUserScramCredentialsRequest: {"salt": _hidden, "saltedPassword": _hidden},
    messages.CreateDelegationTokenResponse: {"hmac": _hidden},
    messages.DescribeDelegationTokenResponse: {"hmac": _hidden},
    messages.EnvelopeRequest: {"requestData": _hidden},
    messages.EnvelopeResponse: {"responseData": _hidden},
    messages.ExpireDelegationTokenRequest: {"hmac": _hidden},
    messages.FetchResponse: {"records": _shown_records},
    messages.FetchSnapshotResponse: {"unalignedRecords": _shown_records},
    messages.ProduceRequest: {"records": _shown_records},
    messages.RenewDelegationTokenRequest: {"hmac": _hidden},
    messages.SaslAuthenticateRequest: {"authBytes": _hidden},
    messages.SaslAuthenticateResponse: {"authBytes": _hidden},
    messages.ShareFetchResponse: {"records": _shown_records},
}
"""For each message the JSON names of the fields that hold or may hold a secret, at any depth."""
CONFIG_MESSAGES: Final[dict[type[Message], int | None]] = {
    messages.AlterConfigsRequest: None,
    messages.CreateTopicsRequest: TOPIC,
    messages.CreateTopicsResponse: TOPIC,
    messages.DescribeConfigsResponse: None,
    messages.IncrementalAlterConfigsRequest: None,
}
"""The messages with configurations, and the type of their resource; None if the message states the type."""


def redacted(message: Message, fields: dict[str, Json]) -> dict[str, Json]:
    """The JSON form of a message or record, with `REDACTED` in the place of each secret."""
    kind = type(message)
    shown: Json = redact(message, fields)
    shown = _without(shown, HIDDEN_FIELDS.get(kind, {}))
    if kind in CONFIG_MESSAGES:
        shown = _without_configs(shown, CONFIG_MESSAGES[kind])
    assert isinstance(shown, dict), shown
    return shown


def redacted_value(value: bytes | None) -> str | None:
    """The value of a batch's record in hexadecimal digits.

    `REDACTED` is shown instead if the value is a metadata record with a secret, or one that may hold a secret and
    cannot be read.
    """
    if value is None:
        return None
    return REDACTED if _is_secret(value) else value.hex()


def _is_secret(value: bytes) -> bool:
    try:
        record_type, _ = peek_type(value)
    except MetadataLogError:
        return False  # this is no metadata record
    if RECORD_TYPES.get(record_type) not in MAY_HOLD_SECRETS:
        return False
    try:
        record = decode_record(value).record
    except MetadataLogError:
        record = None
    return record is None or bool(secret_fields(record))


def _without(fields: Json, names: dict[str, _Hide]) -> Json:
    """JSON in which the fields of these names are hidden, at any depth."""
    match fields:
        case dict():
            return {
                name: names[name](value) if name in names and value is not None else _without(value, names)
                for name, value in fields.items()
            }
        case list():
            return [_without(one, names) for one in fields]
        case _:
            return fields


def _without_configs(fields: Json, resource_type: int | None) -> Json:
    """JSON in which the secret values of configurations of a type of resource are hidden, synonyms included."""
    match fields:
        case dict():
            kind: Json = fields.get("resourceType", resource_type)
            found = {name: _without_configs(value, kind) for name, value in fields.items()}
            if isinstance(found.get("value"), str) and _is_secret_config(kind, found):
                found["value"] = REDACTED
            return found
        case list():
            return [_without_configs(one, resource_type) for one in fields]
        case _:
            return fields


def _is_secret_config(resource_type: int, config: dict[str, Json]) -> bool:
    """Whether the value of a configuration is hidden. The synonyms of a topic's setting have the names of brokers."""
    kinds = (TOPIC, BROKER) if resource_type == TOPIC else (resource_type,)
    is_sensitive: bool = config.get("isSensitive", False)
    return is_sensitive or all(is_secret_config(kind, config["name"], config["value"]) for kind in kinds)
