"""The names that clients choose take a bounded number of bytes in a broker's memory."""

from __future__ import annotations

import sys
from random import Random

import pytest
from msgspec import Struct

from kraft.access.authorizer import AclOperation, AclResource, AuthorizerSettings
from kraft.handling.coordinators import java_hash
from kraft.handling.quotas import PRODUCED, ClientQuotas
from kraft.handling.rights import Rights
from kraft.limits import QUOTA_RATES
from kraft.wire import WireRequest
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.records.metadata import ClientQuotaRecord, EntityData
from metadata_log.types import OffsetAndEpoch
from support.kraft.denials import taken
from support.work_counted import lines_run
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.headers import encode_response
from transport.protocol.inbound import Principal
from transport.protocol.messages import FindCoordinatorRequest
from transport.protocol.messages.produce import ProduceResponse

EMOJI = "\U0001f4a9"
LONG = 32_000


def asked(client_id: str = "c", user: str = "alice") -> WireRequest:
    return WireRequest(
        request_id=1,
        api_key=0,
        version=9,
        message=FindCoordinatorRequest(),
        client_id=client_id,
        principal=Principal("User", user),
        listener="OUTSIDE",
        peer="10.0.0.1:5000",
    )


def strings(kept: object) -> int:
    """The bytes of the texts in a structure of dicts, tuples and structs."""
    if isinstance(kept, str):
        return sys.getsizeof(kept)
    if isinstance(kept, dict):
        return sum(strings(key) + strings(value) for key, value in kept.items())
    if isinstance(kept, tuple | list):
        return sum(map(strings, kept))
    if isinstance(kept, Struct):
        return sum(strings(getattr(kept, name)) for name in kept.__struct_fields__)
    return 0


def test_verdicts_about_long_names_are_not_remembered() -> None:
    rights = Rights(AuthorizerSettings())
    for number in range(100):
        name = f"{EMOJI}{'x' * LONG}{number}"
        assert not rights(asked(), AclOperation.DESCRIBE, AclResource.TOPIC, name)
        assert not rights(asked(user=name), AclOperation.DESCRIBE, AclResource.TOPIC, "t")
        assert not rights.of_any(asked(user=name), AclOperation.WRITE, AclResource.TOPIC)
    assert len(taken(rights.audited)) == 200
    assert strings(vars(rights)) < 10_000
    assert not rights(asked(), AclOperation.DESCRIBE, AclResource.TOPIC, "t")


def with_quota(bound: float = 1000.0) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    entity = (EntityData(entity_type="client-id", entity_name=None),)
    delta.replay(ClientQuotaRecord(entity=entity, key=PRODUCED, value=bound, remove=False), 0)
    return delta.apply(OffsetAndEpoch(epoch=1, offset=1))


@pytest.mark.parametrize("bound", [5e-324, 1e-300, 1e-3, 2.0**63, float("inf")])
def test_no_quota_makes_a_wait_that_an_answer_cannot_hold(bound: float) -> None:
    """A record may hold any double: a broker ended over the smallest ones, and closed the connection over others."""
    quotas = ClientQuotas()
    quotas.use(with_quota(bound))
    wait_ms = quotas.charge(PRODUCED, asked(), 100_000_000, 0)
    assert 0 <= wait_ms <= 2**31 - 1
    encode_response(0, 9, 1, ProduceResponse(throttle_time_ms=wait_ms), apis=ALL_APIS)


def test_long_client_ids_are_counted_apart_in_little_memory() -> None:
    quotas = ClientQuotas()
    quotas.use(with_quota())
    first, second = (f"{EMOJI}{'x' * LONG}{number}" for number in range(2))
    assert quotas.charge(PRODUCED, asked(first), 1_000_000, 0) > 0
    assert quotas.charge(PRODUCED, asked(second), 1, 0) == 0
    assert quotas.charge(PRODUCED, asked(first), 1, 0) > 0
    assert strings(vars(quotas)) < 10_000


def test_no_more_clients_are_counted_than_there_is_room_for_and_each_costs_the_same() -> None:
    quotas = ClientQuotas()
    quotas.use(with_quota())
    quotas.charge(PRODUCED, asked("greedy"), 1_000_000, 0)
    for number in range(QUOTA_RATES + 100):
        quotas.charge(PRODUCED, asked(f"c{number}"), 1, 0)
        if number % 1000 == 0:
            assert quotas.charge(PRODUCED, asked("greedy"), 0, 0) > 0, "a client in use is not forgotten"
    assert len(vars(quotas)["_rates"]) == QUOTA_RATES
    one_more = (asked(f"d{number}") for number in range(100))
    assert lines_run(lambda: [quotas.charge(PRODUCED, each, 1, 0) for each in one_more]) < 100 * 120


def test_the_hash_of_a_long_name_is_javas_and_cheap() -> None:
    """`String.hashCode` of the definition, over UTF-16 units."""
    rng = Random(3)
    for length in (0, 1, 2, 255, 256, 257, 5000):
        text = "".join(rng.choice(("a", "é", "\uffff", EMOJI)) for _ in range(length))
        data, value = text.encode("utf-16-be"), 0
        for at in range(0, len(data), 2):
            value = (31 * value + int.from_bytes(data[at : at + 2], "big")) & 0xFFFFFFFF
        assert java_hash(text) & 0xFFFFFFFF == value
    assert lines_run(lambda: java_hash("x" * LONG)) < 500
