"""Recorded answers of an Apache Kafka 4.3.1 controller to administrators, and the same requests to ours in that order.

Each scenario is one controller from its format on: requests and answers as they were on the wire, and at the end every
record of its log. What chance or the clock has made is put into one form before two answers are compared.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, Final

from msgspec import Struct, structs

from kraft.access.authorizer import AuthorizerSettings
from kraft.access.tokens import TokenSettings
from kraft.config.described import Secret
from kraft.controller.decision.request_context import AdminSettings
from metadata_log.records import metadata
from metadata_log.records.frame import decode_record, encode_record
from metadata_log.serde import Message
from metadata_log.types import Uuid
from support import DATA
from support.differential.controller_sides import InProcess
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.headers import decode_request, decode_response

SECURED: Final = AdminSettings(
    authorizer=AuthorizerSettings(frozenset(("User:ANONYMOUS", "User:alice"))),
    tokens=TokenSettings(secret=Secret("admin-answers-secret")),
)
RECORDED: Final = "4.3"
"""The release of the controller that answered."""
OF_A_CONTROLLER: Final = (metadata.NoOpRecord, metadata.RegisterControllerRecord)


class Exchange(Struct, frozen=True):
    """A request, and Kafka's answer; None where it closed the connection."""

    version: int
    request: Message
    answer: Message | None


@cache
def _lines(scenario: str) -> tuple[dict[str, Any], ...]:
    content = gzip.decompress((DATA / "admin_answers.jsonl.gz").read_bytes())
    lines = [json.loads(line) for line in content.splitlines()]
    return tuple(line for line in lines if line["scenario"] == scenario)


def exchanges(scenario: str) -> Iterator[Exchange]:
    """The requests and answers, in order."""
    for line in _lines(scenario):
        if "request" in line:
            header, request = decode_request(bytes.fromhex(line["request"]))
            key, version = ApiKey(header.request_api_key), header.request_api_version
            response = line["response"]
            answer = None if response is None else decode_response(key, version, bytes.fromhex(response))[1]
            yield Exchange(version, request, answer)


def kafkas_records(scenario: str) -> list[tuple[int, Message]]:
    """Every record that Kafka wrote, with its version, but those that a controller writes about itself."""
    found = []
    for value in _lines(scenario)[-1]["records"]:
        framed = decode_record(bytes.fromhex(value), where=scenario)
        assert framed.record is not None
        found.append((framed.version, framed.record))
    return without_own(found)


def without_own(records: list[tuple[int, Message]]) -> list[tuple[int, Message]]:
    """Without the records that a controller writes about itself, and without drawn ids."""
    return [(version, undrawn(record)) for version, record in records if not isinstance(record, OF_A_CONTROLLER)]


def undrawn(record: Message) -> Message:
    """A record without the id that was drawn for it."""
    match record:
        case metadata.AccessControlEntryRecord() | metadata.RemoveAccessControlEntryRecord():
            return structs.replace(record, id=Uuid.ZERO)
        case _:
            return record


def plain(value: Any) -> Any:
    """A message as plain values; lists of structs sorted, as Kafka takes their order from a hash map."""
    if isinstance(value, Message):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, (list, tuple)):
        values = [plain(one) for one in value]
        return sorted(values, key=repr) if values and isinstance(values[0], dict) else values
    return value


def settings_told(scenario: str) -> frozenset[str]:
    """The settings that Kafka tells of in any answer of a scenario."""
    return frozenset(name for asked in exchanges(scenario) for name in _settings_in(plain(asked.answer)))


def _settings_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (one["name"] for one in value.get("configs", ()))
        for part in value.values():
            yield from _settings_in(part)
    elif isinstance(value, list):
        for part in value:
            yield from _settings_in(part)


def only(known: frozenset[str], value: Any) -> Any:
    """A plain answer without other settings than these: without those that later releases have."""
    if isinstance(value, dict):
        return {
            name: [one for one in part if one["name"] in known] if name == "configs" else only(known, part)
            for name, part in value.items()
        }
    return [only(known, part) for part in value] if isinstance(value, list) else value


def codes(value: Any) -> set[int]:
    """Every error code in an answer."""
    if isinstance(value, Message):
        return {code for name in value.__struct_fields__ for code in codes(getattr(value, name))} | {
            getattr(value, "error_code", 0)
        }
    return {code for one in value for code in codes(one)} if isinstance(value, (list, tuple)) else set()


def disagreements(scenario: str, side: InProcess, look: Callable[[Message], Any] = plain) -> dict[int, tuple[Any, Any]]:
    """Where ours answers otherwise than Kafka does, and what both say; by the number of the request, from 1 on.

    Where Kafka closes the connection, as it cannot read the request, ours is to say that the request is invalid. `look`
    makes of an answer what is to be equal.
    """
    found = {}
    for number, asked in enumerate(exchanges(scenario), 1):
        answer = side.ask(asked.request, asked.version)
        if asked.answer is None:
            assert codes(answer) == {0, Error.INVALID_REQUEST} or codes(answer) == {Error.INVALID_REQUEST}, answer
        elif look(answer) != look(asked.answer):
            found[number] = (look(asked.answer), look(answer))
    return found


def as_bytes(records: Iterable[tuple[int, Message]]) -> list[bytes]:
    """Records as they are in a log, sorted, where Kafka takes their order from a hash map."""
    return sorted(encode_record(record, version) for version, record in records)


def our_records(side: InProcess) -> list[tuple[int, Message]]:
    """The records that ours has written, in the form of `kafkas_records`."""
    return without_own([record for batch in side.batches for record in batch])
