"""Strange requests for quotas: a broker of ours answers them as Kafka's, with its codes and its words."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan
from pathlib import Path
from typing import Final

import pytest

from one_node import one_node
from support.interop.real_kafka import KafkaInstallation
from support.wire import ask, reaction, request_bytes
from transport.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    OpData,
)
from transport.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

pytestmark = pytest.mark.kafka
Entity = tuple[tuple[str, str | None], ...]
Op = tuple[str, float, bool]
A: Final[Entity] = (("user", "a"),)
IP: Final[Entity] = (("ip", "127.0.0.9"),)
BYTES: Final = "producer_byte_rate"
SECOND: Final[Op] = (BYTES, 1000.0, False)
CREATED: Final[Op] = ("connection_creation_rate", 100.0, False)
ENTITIES: Final[tuple[tuple[Entity, Op], ...]] = (
    ((), SECOND),
    (A, SECOND),
    ((("user", ""),), SECOND),
    ((("client-id", ""),), SECOND),
    ((("user", None), ("client-id", None)), SECOND),
    ((("client-id", "c"), ("user", "a")), SECOND),
    ((("user", "a"), ("user", "b")), SECOND),
    ((("user", "\u00fc %*"),), SECOND),
    ((("USER", "a"),), SECOND),
    ((("group", "a"),), SECOND),
    ((("", "a"),), SECOND),
    ((("user", "a"), ("group", "a")), SECOND),
    (IP, CREATED),
    ((("ip", None),), CREATED),
    ((("ip", ""),), CREATED),
    ((("ip", "::1"),), CREATED),
    ((("ip", "0:0:0:0:0:0:0:2"),), CREATED),
    ((("ip", "not an address"),), CREATED),
    ((("ip", "10.0.0.1"), ("user", "a")), CREATED),
    ((("ip", None), ("client-id", None)), CREATED),
    ((("ip", "10.0.0.1"), ("user", "a")), SECOND),
    (A, CREATED),
    (IP, SECOND),
    (IP, ("request_percentage", 5.0, False)),
)
OPS: Final[tuple[tuple[Entity, tuple[Op, ...]], ...]] = (
    *(
        (A, ((BYTES, value, False),))
        for value in (-1.0, 0.0, -0.0, 0.5, 1.0000001, 1e19, 2.0**63, nan, inf, -inf, 1e300)
    ),
    *((A, (("request_percentage", value, False),)) for value in (-1.0, 0.0, 1e-9, 1e300, nan, inf)),
    *((A, (("controller_mutation_rate", value, False),)) for value in (-0.5, 0.0, 0.25)),
    *(
        (IP, (("connection_creation_rate", value, False),))
        for value in (-1.0, 0.0, 0.5, 2.0**31 - 1, 2.0**31, nan, 1e10)
    ),
    (A, (("no_such_key", 1.0, False),)),
    (A, (("", 1.0, False),)),
    (A, (("PRODUCER_BYTE_RATE", 1.0, False),)),
    (A, ()),
    (A, ((BYTES, nan, True),)),
    (A, ((BYTES, -1.0, True),)),
    (A, (("no_such_key", 1.0, True),)),
    (A, (("connection_creation_rate", 1.0, True),)),
    (A, (SECOND, SECOND)),
    (A, (SECOND, (BYTES, 1.0, True))),
    (A, (SECOND, ("no_such_key", 1.0, False))),
)
COMPONENTS: Final[tuple[tuple[tuple[str, int, str | None], ...], ...]] = (
    (),
    (("user", 0, "a"),),
    (("user", 0, None),),
    (("user", 0, ""),),
    (("user", 1, None),),
    (("user", 1, "a"),),
    (("user", 2, None),),
    (("user", 2, "a"),),
    (("user", 3, None),),
    (("user", -1, "a"),),
    (("ip", 0, "127.0.0.9"),),
    (("ip", 0, "not an address"),),
    (("ip", 1, None),),
    (("ip", 2, None),),
    (("group", 0, "a"),),
    (("", 2, None),),
    (("user", 0, "a"), ("user", 0, "a")),
    (("user", 2, None), ("client-id", 2, None)),
    (("user", 2, None), ("ip", 2, None)),
    (("ip", 0, "127.0.0.9"), ("client-id", 1, None)),
    (("user", 0, "a"), ("group", 0, "a")),
)


def entry(entity: Entity, ops: tuple[Op, ...]) -> AlterClientQuotasRequestEntryData:
    return AlterClientQuotasRequestEntryData(
        [AlterClientQuotasRequestEntityData(kind, name) for kind, name in entity], [OpData(*one) for one in ops]
    )


def changes() -> Iterator[AlterClientQuotasRequest]:
    """The changes, one after the other, and some that name something twice."""
    for entity, op in ENTITIES:
        yield AlterClientQuotasRequest([entry(entity, (op,))])
    for entity, ops in OPS:
        yield AlterClientQuotasRequest([entry(entity, ops)])
    yield AlterClientQuotasRequest([])
    yield AlterClientQuotasRequest([entry(A, (SECOND,)), entry(A, (SECOND,))])
    yield AlterClientQuotasRequest([entry(A, (SECOND,)), entry((("user", ""),), (SECOND,)), entry(IP, (CREATED,))])
    yield AlterClientQuotasRequest([entry(A, ((BYTES, 7.0, False),))], validate_only=True)
    yield AlterClientQuotasRequest([entry(A, ((BYTES, -7.0, False),))], validate_only=True)


def altered(port: int, request: AlterClientQuotasRequest, version: int) -> object:
    """The answer to a change, the entities in any order."""
    found = ask(port, request, version, AlterClientQuotasResponse)
    return sorted(
        (one.error_code, one.error_message, sorted((part.entity_type, str(part.entity_name)) for part in one.entity))
        for one in found.entries
    )


def described(port: int, request: DescribeClientQuotasRequest, version: int) -> tuple[object, ...]:
    """The answer to a question, its entries in any order."""
    found = ask(port, request, version, DescribeClientQuotasResponse)
    entries = [
        (
            sorted((part.entity_type, str(part.entity_name)) for part in one.entity),
            sorted((each.key, each.value) for each in one.values),
        )
        for one in found.entries or ()
    ]
    return found.error_code, found.error_message, found.entries is None, sorted(entries)


def answers(port: int) -> dict[str, object]:
    """What a broker says to each request, in their order."""
    found: dict[str, object] = {}
    for at, change in enumerate(changes()):
        found[f"{at} {change}"] = altered(port, change, at % 2)
    for components in COMPONENTS:
        for is_strict in (False, True):
            parts = [ComponentData(kind, match_type, match) for kind, match_type, match in components]
            asked = DescribeClientQuotasRequest(parts, is_strict)
            for version in (0, 1):
                found[f"{version} {asked}"] = described(port, asked, version)
    for message in (AlterClientQuotasRequest([]), DescribeClientQuotasRequest([], strict=False)):
        frame = bytearray(request_bytes(message, 1))
        frame[6:8] = (2).to_bytes(2, "big")
        found[f"later version of {type(message).__name__}"] = reaction(port, bytes(frame))
    return found


def test_strange_requests_for_quotas_are_answered_as_by_kafka(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    told = {}
    for make in ("kafka", "ours"):
        with one_node(newer_kafka, tmp_path / make, make) as (_, port):
            told[make] = answers(port)
    assert len(told["ours"]) > 100
    differ = {key: (theirs, told["ours"][key]) for key, theirs in told["kafka"].items() if told["ours"][key] != theirs}
    assert not differ, "\n".join(f"{key}\n  theirs {one}\n  ours   {other}" for key, (one, other) in differ.items())
