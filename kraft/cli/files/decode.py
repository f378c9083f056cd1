"""`kraft decode`: decodes a message, a record or a batch to JSON without its secrets (Kafka: the generated
`JsonConverter`s).
"""

from __future__ import annotations

import base64
import difflib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import click
from msgspec import Struct

from kraft.cli.files.image_at import show_secrets_option
from kraft.cli.text import echo
from kraft.config import UsageError
from kraft.config.errors import CommandFailed
from metadata_log.errors import CorruptBatch, EncodeError, MetadataLogError
from metadata_log.records import RECORD_TYPES, control, decode_control, decode_record, encode_record, remote_storage
from metadata_log.records.aborted_txn import AbortedTxn
from metadata_log.records.batch import RecordBatch, read_batch, scan
from metadata_log.records.batch_builder import rebuild_batch
from metadata_log.records.config_keys import BROKER, TOPIC
from metadata_log.records.coordinator import TOPICS
from metadata_log.records.frame import ControlRecordType, peek_type
from metadata_log.records.record import Record, records
from metadata_log.records.redact import MAY_HOLD_SECRETS, REDACTED, is_secret_config, redact, secret_fields
from metadata_log.serde import Message, decode_from, encode, to_json
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
            shown = {name: _without_configs(value, kind) for name, value in fields.items()}
            if isinstance(shown.get("value"), str) and _is_secret_config(kind, shown):
                shown["value"] = REDACTED
            return shown
        case list():
            return [_without_configs(one, resource_type) for one in fields]
        case _:
            return fields


def _is_secret_config(resource_type: int, config: dict[str, Json]) -> bool:
    """Whether the value of a configuration is hidden. The synonyms of a topic's setting have the names of brokers."""
    kinds = (TOPIC, BROKER) if resource_type == TOPIC else (resource_type,)
    is_sensitive: bool = config.get("isSensitive", False)
    return is_sensitive or all(is_secret_config(kind, config["name"], config["value"]) for kind in kinds)


FRAME: Final = "frame"
BATCH: Final = "batch"
KINDS: Final = ("message", "record", FRAME, BATCH)
_MOST_RECORDS: Final = 100_000
"""The most records that one JSON document shows: a batch of some kilobytes may have millions."""
_MAX_INT32: Final = 0x7FFFFFFF


class Decoded(Struct, frozen=True, kw_only=True):
    """A decoded value. `json` has Kafka's form; `again` is the re-encoded value; `left` counts the bytes after it.

    `again` is None for a value that cannot be written, such as one with unknown tagged fields out of order. `name` and
    `version` are those in a record's frame.
    """

    json: dict[str, Any]
    again: bytes | None
    left: int = 0
    name: str | None = None
    version: int | None = None
    is_redacted: bool = False
    """Whether `json` lacks a secret that `again` holds."""


@click.command("decode", short_help="Turn bytes into JSON.")
@click.argument("words", nargs=-1, metavar="NAME VERSION HEX")
@click.option("--batch", "many", is_flag=True, help="Read JSON lines from standard input and answer each with one.")
@click.option("--tolerant", is_flag=True, help="Keep the bytes of a record of an unknown type, where Kafka stops.")
@show_secrets_option
def decode_command(words: tuple[str, ...], *, many: bool, tolerant: bool, show_secrets: bool) -> None:
    """Print bytes as JSON, in Kafka's own form.

    NAME is a message or record without its frame, such as VoteRequest or PartitionRecord, the key or value of a
    coordinator's record, such as OffsetCommitValue, or AbortedTxn. `frame HEX` decodes a record's value from the
    metadata log, `batch HEX` a record batch. HEX is - for standard input.

    With --batch each line is {"kind": "message|record|frame|batch", "name": …, "version": …, "hex": …}. The answer is
    {"ok": true, "json": …, "hex": encoded again}, or {"ok": false, "error": …, "detail": …, "position": …,
    "field": …}.

    \b
    Example:
        kraft decode TopicRecord 0 0004666f6fca2cf8e1f34a4abca66e2f2a5d1d1e1f00
        kraft decode frame 01140000
    """
    if many:
        if words:
            raise click.UsageError("--batch reads standard input, and no NAME")
        for line in sys.stdin:
            echo(_dump(answer(line, tolerant=tolerant, show_secrets=show_secrets)))
        return
    _print_one(words, tolerant, show_secrets)


def _print_one(words: tuple[str, ...], tolerant: bool, show_secrets: bool) -> None:
    match words:
        case [("frame" | "batch") as kind, text]:
            decoded = read(kind, None, None, _bytes_of(text), tolerant=tolerant, show_secrets=show_secrets)
        case [name, version, text]:
            number = _version_of(version)
            decoded = read("message", name, number, _bytes_of(text), tolerant=tolerant, show_secrets=show_secrets)
        case _:
            raise click.UsageError("expected NAME VERSION HEX, frame HEX or batch HEX")
    if decoded.name is None:
        echo(_dump(decoded.json))
    else:
        echo(_dump({"type": decoded.name, "version": decoded.version, "data": decoded.json}))
    if decoded.left:
        raise CommandFailed(
            f"{decoded.left} bytes are left over", hint="Is VERSION wrong, or does HEX hold two values?"
        )


def answer(line: str, *, tolerant: bool = False, show_secrets: bool = False) -> dict[str, Any]:
    """The answer to one line of `--batch`; no input raises an exception."""
    try:
        asked = _asked(line)
        decoded = read(*asked, tolerant=tolerant, show_secrets=show_secrets)
    except MetadataLogError as bad:
        reply = {
            "ok": False,
            "error": type(bad).__name__,
            "detail": str(bad),
            "position": bad.position,
            "field": bad.field,
        }
        return reply | ({"field": bad.field} if bad.field else {})
    except UsageError as bad:
        return {"ok": False, "error": type(bad).__name__, "detail": str(bad), "position": None, "field": None}
    again = REDACTED if decoded.is_redacted and decoded.again is not None else _hex(decoded.again)
    reply = {"ok": True, "json": decoded.json, "hex": again}
    if decoded.name is not None:
        reply |= {"name": decoded.name, "version": decoded.version}
    return reply | ({"bytes_left": decoded.left} if decoded.left else {})


def _asked(line: str) -> tuple[str, str | None, int | None, bytes]:
    """Kind, name, version and bytes of one line."""
    try:
        question = json.loads(line)
    except (ValueError, RecursionError) as bad:
        raise UsageError(f"not a line of JSON: {bad}", hint=None) from bad
    if not isinstance(question, dict):
        raise UsageError("a line must be a JSON object", hint=None)
    kind, name, version, text = (question.get(key) for key in ("kind", "name", "version", "hex"))
    if kind not in KINDS:
        raise UsageError(f"kind is {kind!r}; it must be one of {', '.join(KINDS)}", hint=None)
    if not isinstance(text, str):
        raise UsageError("hex is missing, or no text", hint=None)
    if kind in {FRAME, BATCH}:
        return kind, None, None, _bytes_of(text)
    if not isinstance(name, str) or type(version) is not int:
        raise UsageError(f"a {kind} needs a name and a version", hint=None)
    return kind, name, version, _bytes_of(text)


def read(
    kind: str,
    name: str | None,
    version: int | None,
    data: bytes,
    *,
    tolerant: bool = False,
    show_secrets: bool = False,
) -> Decoded:
    """Decode `data`; raises `MetadataLogError` for invalid data, and `UsageError` for an unknown name.

    Without `show_secrets`, `REDACTED` takes the place of each secret in the JSON.
    """
    match kind:
        case "frame":
            return _read_frame(data, tolerant, show_secrets)
        case "batch":
            return _read_batch(data, show_secrets)
        case _:
            assert name is not None, kind
            assert version is not None, kind
            message, end = decode_from(_class_of(name), version, data)
            body, is_redacted = _shown(message, version, show_secrets)
            again = _again(encode, message, version)
            return Decoded(json=body, again=again, left=len(data) - end, is_redacted=is_redacted)


def _shown(message: Message, version: int, show_secrets: bool) -> tuple[dict[str, Any], bool]:
    """The JSON form of a message, and whether that form lacks a secret."""
    plain = to_json(message, version)
    shown = plain if show_secrets else redacted(message, plain)
    return shown, shown != plain


def _read_frame(value: bytes, tolerant: bool, show_secrets: bool) -> Decoded:
    framed = decode_record(value, strict=not tolerant)
    if framed.record is None:
        shown = value.hex() if show_secrets else redacted_value(value)
        is_redacted = shown == REDACTED
        return Decoded(
            json={"hex": shown}, again=value, name=framed.name, version=framed.version, is_redacted=is_redacted
        )
    known = min(framed.version, framed.record.__schema__.versions.highest)
    newer = known != framed.version
    again = value if newer else _again(encode_record, framed.record, known)
    body, is_redacted = _shown(framed.record, known, show_secrets)
    return Decoded(json=body, again=again, name=framed.name, version=framed.version, is_redacted=is_redacted)


def _again(write: Callable[[Message, int], bytes], message: Message, version: int) -> bytes | None:
    try:
        return write(message, version)
    except EncodeError:
        return None


def _read_batch(data: bytes, show_secrets: bool) -> Decoded:
    batch = read_batch(data)
    if batch.size_bytes < len(data):
        raise CorruptBatch(f"{len(data) - batch.size_bytes} bytes behind the batch", position=batch.size_bytes)
    if batch.record_count > _MOST_RECORDS:
        raise CorruptBatch(f"{batch.record_count} records; at most {_MOST_RECORDS} of a batch are decoded here")
    contents = list(records(batch))
    shown = [_record_json(batch, record, show_secrets) for record in contents]
    body = {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "size_in_bytes": batch.size_bytes,
        "partition_leader_epoch": batch.epoch,
        "magic": batch.magic,
        "crc": batch.crc,
        "compression": batch.codec,
        "timestamp_type": "LogAppendTime" if batch.is_log_append_time else "CreateTime",
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "count": batch.record_count,
        "records": shown,
    }
    is_redacted = any(one["value_hex"] == REDACTED for one in shown)
    return Decoded(json=body, again=rebuild_batch(batch, contents), is_redacted=is_redacted)


def _record_json(batch: RecordBatch, record: Record, show_secrets: bool) -> dict[str, Any]:
    sequence = -1
    if batch.base_sequence >= 0:  # sequences wrap after the largest int (Kafka: `DefaultRecordBatch.incrementSequence`)
        sequence = (batch.base_sequence + record.offset - batch.base_offset) % (_MAX_INT32 + 1)
    facts: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "sequence": sequence,
        "key_hex": _hex(record.key),
        "value_hex": _hex(record.value) if show_secrets or batch.is_control else redacted_value(record.value),
        "headers": [{"key": header.key, "value_hex": _hex(header.value)} for header in record.headers],
    }
    if batch.is_control and record.key is not None and record.value is not None:
        number, message = decode_control(record.key, record.value)
        if message is not None:
            version = min(int.from_bytes(record.value[:2], "big"), message.__schema__.versions.highest)
            facts |= {"control_type": ControlRecordType(number).name, "json": to_json(message, version)}
    return facts


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _class_of(name: str) -> type[Message]:
    """The class of a name; raises `UsageError` with suggestions."""
    for known, find in _declared():
        if name in known:
            return find(name)
    names = sorted(each for known, _ in _declared() for each in known)
    near = difflib.get_close_matches(name, names, n=3)
    hint = f"Did you mean {' or '.join(near)}?" if near else "For example VoteRequest, FetchResponse or TopicRecord."
    raise UsageError(f"no message or record is called {name!r}", hint=hint)


def _declared() -> Iterator[tuple[Iterable[str], Callable[[str], type[Message]]]]:
    """The sets of names, each with the function that finds a class by name."""
    yield messages.__all__, lambda name: getattr(messages, name)
    coordinators = (cls for kinds in TOPICS.values() for kind in kinds.values() for cls in (kind.key, kind.value))
    known: tuple[type[Message], ...] = (
        *RECORD_TYPES.values(),
        *remote_storage.RECORD_TYPES.values(),
        *coordinators,
        AbortedTxn,
    )
    by_name = {cls.__name__: cls for cls in known}
    yield by_name, by_name.__getitem__
    others = {name: cls for name, cls in vars(control).items() if hasattr(cls, "__schema__")}
    yield others, others.__getitem__


def _version_of(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    raise UsageError(f"version {text!r} is not a number", hint="For example: kraft decode VoteRequest 2 HEX")


def _bytes_of(text: str) -> bytes:
    try:
        return bytes.fromhex(sys.stdin.read() if text == "-" else text)
    except ValueError as bad:
        raise UsageError(
            f"not hexadecimal digits: {bad}", hint="Two digits for each byte; spaces may stand between."
        ) from bad


def _dump(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)
