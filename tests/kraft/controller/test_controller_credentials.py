"""SCRAM credentials and delegation tokens are made, removed and described as by Kafka's controller."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from hashlib import pbkdf2_hmac
from random import Random
from typing import Any

import pytest
from msgspec import structs

from kraft.access.caller import Caller
from kraft.access.tokens import token_hmac
from kraft.config.described import Secret
from metadata_log.records.metadata import DelegationTokenRecord, FeatureLevelRecord, UserScramCredentialRecord
from metadata_log.records.scram import parse_credential
from metadata_log.serde import Message, encode, schema_of
from support.differential.admin_answers import (
    RECORDED,
    SECURED,
    disagreements,
    exchanges,
    kafkas_records,
    our_records,
    plain,
)
from support.differential.controller_sides import InProcess
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.headers import decode_request, decode_response, encode_request
from transport.protocol.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    EnvelopeRequest,
    EnvelopeResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from transport.protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from transport.protocol.messages.create_delegation_token import CreatableRenewers
from transport.protocol.messages.describe_user_scram_credentials import UserName
from transport.protocol.messages.principal import DefaultPrincipalData

EMPTY_SALTED_PASSWORD, DESCRIBE_ONE, DESCRIBE_ALL = 22, 28, 29


def test_answers_and_records_are_kafkas() -> None:
    """Kafka answers -1 to an empty key, at which its arithmetic fails, and to what it is to describe."""
    side = InProcess(admin=SECURED, release=RECORDED)
    assert sorted(disagreements("scram", side)) == [EMPTY_SALTED_PASSWORD, DESCRIBE_ONE, DESCRIBE_ALL]
    assert our_records(side) == kafkas_records("scram")


def test_an_empty_password_refuses_only_its_user() -> None:
    side = InProcess()
    whole = ScramCredentialUpsertion(name="a", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p")
    empty = ScramCredentialUpsertion(name="b", mechanism=1, iterations=4096, salt=b"s")
    answer = side.ask(AlterUserScramCredentialsRequest(upsertions=[empty, whole]), 0)
    assert isinstance(answer, AlterUserScramCredentialsResponse)
    assert {one.user: one.error_code for one in answer.results} == {"a": 0, "b": Error.UNACCEPTABLE_CREDENTIAL}
    assert list(side.controller.history.latest.scram.by_user) == ["a"]


def test_a_client_and_the_formatter_derive_the_same_credential() -> None:
    record = parse_credential("SCRAM-SHA-512=[name=alice,password=wonderland,iterations=8192,salt=c2FsdA==]", Random(1))
    side = InProcess()
    salted = pbkdf2_hmac("sha512", b"wonderland", b"salt", 8192)
    upsertion = ScramCredentialUpsertion(
        name="alice", mechanism=2, iterations=8192, salt=b"salt", salted_password=salted
    )
    side.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
    written = [one for _, one in our_records(side) if isinstance(one, UserScramCredentialRecord)]
    assert written == [record]


def describe(side: InProcess, users: list[UserName] | None) -> list[tuple[str, int, list[tuple[int, int]]]]:
    answer = side.ask(DescribeUserScramCredentialsRequest(users=users), 0)
    assert isinstance(answer, DescribeUserScramCredentialsResponse)
    return [
        (one.user, one.error_code, [(info.mechanism, info.iterations) for info in one.credential_infos])
        for one in answer.results
    ]


def test_users_are_described_by_name_or_all_of_them() -> None:
    side = InProcess()
    for name, mechanism, iterations in (("b", 2, 5000), ("a", 1, 4096), ("b", 1, 4097)):
        upsertion = ScramCredentialUpsertion(
            name=name, mechanism=mechanism, iterations=iterations, salt=b"s", salted_password=b"p"
        )
        side.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
    everything = [("a", 0, [(1, 4096)]), ("b", 0, [(1, 4097), (2, 5000)])]
    assert describe(side, None) == everything
    assert describe(side, []) == everything
    assert describe(side, [UserName(name="b"), UserName(name="c")]) == [
        everything[1],
        ("c", Error.RESOURCE_NOT_FOUND, []),
    ]
    assert describe(side, [UserName(name="a"), UserName(name="a")]) == [("a", Error.DUPLICATE_RESOURCE, [])]


def test_scram_needs_its_metadata_version() -> None:
    side = InProcess(bootstrap=(FeatureLevelRecord(name="metadata.version", feature_level=10),))
    upsertion = ScramCredentialUpsertion(name="a", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p")
    answer = side.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
    assert isinstance(answer, AlterUserScramCredentialsResponse)
    assert [one.error_code for one in answer.results] == [Error.UNSUPPORTED_VERSION]


# Delegation tokens are issued, renewed and ended as Kafka's controller does it.


ALICE, BOB, EVE = Caller("User", "alice"), Caller("User", "bob"), Caller("User", "eve")
JUST_EXPIRED = 34
"""Kafka looks tokens up in a cache that lags behind what it has decided: this one was still valid there."""
HOUR_MS, DAY_MS = 3_600_000, 86_400_000


def forwarded(side: InProcess, caller: Caller, message: Message, version: int) -> Message:
    """The answer to a client that comes through a broker."""
    api_key = schema_of(type(message)).api_key
    assert api_key is not None
    principal = DefaultPrincipalData(type=caller.type, name=caller.name, token_authenticated=caller.is_token)
    envelope = EnvelopeRequest(
        request_data=encode_request(api_key, version, 1, "client", message),
        request_principal=b"\0\0" + encode(principal, 0),
        client_host_address=b"\x7f\0\0\1",
    )
    answer = side.ask(envelope, 0)
    assert isinstance(answer, EnvelopeResponse)
    assert answer.response_data is not None, answer.error_code
    return decode_response(ApiKey(api_key), version, answer.response_data)[1]


def create(side: InProcess, caller: Caller = ALICE, **fields: Any) -> CreateDelegationTokenResponse:
    answer = forwarded(side, caller, CreateDelegationTokenRequest(**({"max_lifetime_ms": -1} | fields)), 3)
    assert isinstance(answer, CreateDelegationTokenResponse)
    return answer


def renew(side: InProcess, hmac: bytes, period_ms: int, caller: Caller = ALICE) -> tuple[int, int]:
    answer = forwarded(side, caller, RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), 2)
    assert isinstance(answer, RenewDelegationTokenResponse)
    return answer.error_code, answer.expiry_timestamp_ms


def expire(side: InProcess, hmac: bytes, period_ms: int, caller: Caller = ALICE) -> tuple[int, int]:
    answer = forwarded(side, caller, ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), 2)
    assert isinstance(answer, ExpireDelegationTokenResponse)
    return answer.error_code, answer.expiry_timestamp_ms


@pytest.mark.parametrize(("scenario", "settings"), [("tokens", {"admin": SECURED}), ("open", {})])
def test_answers_are_kafkas(scenario: str, settings: dict[str, Any]) -> None:
    """Tokens have other ids, and so other HMACs, which the requests after them name; times are told from the issue."""
    side = InProcess(**settings)
    ours: dict[bytes, bytes] = {}
    for number, asked in enumerate(exchanges(scenario), 1):
        side.advance(5)
        expected = asked.answer
        if not isinstance(asked.request, EnvelopeRequest):
            if not isinstance(asked.request, DescribeDelegationTokenRequest):
                assert plain(side.ask(asked.request, asked.version)) == plain(expected), number
            continue
        assert isinstance(expected, EnvelopeResponse)
        header, inner = decode_request(asked.request.request_data)
        if isinstance(inner, (RenewDelegationTokenRequest, ExpireDelegationTokenRequest)):
            inner = structs.replace(inner, hmac=ours.get(inner.hmac, inner.hmac))
        key, version = ApiKey(header.request_api_key), header.request_api_version
        data = encode_request(key, version, header.correlation_id, "client", inner)
        answer = side.ask(structs.replace(asked.request, request_data=data), asked.version)
        assert isinstance(answer, EnvelopeResponse)
        assert answer.error_code == expected.error_code, number
        if answer.response_data is None or expected.response_data is None:
            assert answer.response_data == expected.response_data, number
            continue
        said = decode_response(key, version, answer.response_data)[1]
        kafkas = decode_response(key, version, expected.response_data)[1]
        if number == JUST_EXPIRED:
            assert told(said) == (Error.DELEGATION_TOKEN_EXPIRED, False)
            continue
        assert told(said) == told(kafkas), number
        if isinstance(said, CreateDelegationTokenResponse) and isinstance(kafkas, CreateDelegationTokenResponse):
            ours[kafkas.hmac] = said.hmac


def told(answer: Message) -> Any:
    match answer:
        case CreateDelegationTokenResponse():
            times = [answer.expiry_timestamp_ms - answer.issue_timestamp_ms]
            times.append(answer.max_timestamp_ms - answer.issue_timestamp_ms)
            drawn = structs.replace(
                answer, hmac=b"", token_id="", issue_timestamp_ms=0, expiry_timestamp_ms=0, max_timestamp_ms=0
            )
            return plain(drawn), times, len(answer.hmac), len(answer.token_id)
        case RenewDelegationTokenResponse() | ExpireDelegationTokenResponse():
            return answer.error_code, answer.expiry_timestamp_ms > 0


def test_records_are_kafkas() -> None:
    """With the same names, and the same times from the issue on."""
    side = InProcess(admin=SECURED)
    tokens = [line for line in kafkas_records("tokens") if isinstance(line[1], DelegationTokenRecord)]
    version, first = tokens[0]
    assert isinstance(first, DelegationTokenRecord)
    create(side, renewers=[CreatableRenewers(principal_type="User", principal_name="bob")], max_lifetime_ms=HOUR_MS)
    (written,) = [one for one in our_records(side) if isinstance(one[1], DelegationTokenRecord)]
    assert isinstance(written[1], DelegationTokenRecord)
    assert written[0] == version
    assert written[1].max_timestamp - written[1].issue_timestamp == first.max_timestamp - first.issue_timestamp
    assert (written[1].owner, written[1].requester, written[1].renewers) == (
        first.owner,
        first.requester,
        first.renewers,
    )


def test_an_hmac_is_derived_from_the_secret_and_never_written() -> None:
    side = InProcess(admin=SECURED)
    token = create(side)
    assert len(token.hmac) == 64
    assert all(token.hmac not in encode(record, version) for version, record in our_records(side))
    assert "admin-answers-secret" not in repr(side.controller.settings)


def test_an_hmac_is_the_one_that_kafka_derives() -> None:
    expected = "ICG4RS+fuiBcKBG9wp0dIgdtga0O9eO/9L+qQKqOsSHeZZPs35i8rCmtg7QblHbKs140Aqjj60XW9t7LL4H0iA=="
    assert b64encode(token_hmac(Secret("corpus-secret-key"), "gjA0AJV5R6ad8VQ9K4kLOw")).decode() == expected


def test_expired_tokens_are_removed_periodically() -> None:
    side = InProcess(admin=SECURED)
    create(side, max_lifetime_ms=1)
    lasting = create(side)
    side.advance(SECURED.tokens.check_interval_ms)
    assert list(side.controller.history.latest.tokens.by_id) == [lasting.token_id]


def test_an_owner_without_a_type_is_refused() -> None:
    """Kafka 4.3.1 issues such a token, and its nodes never hear of any token again."""
    side = InProcess(admin=SECURED)
    answer = create(side, owner_principal_type="", owner_principal_name="dave")
    assert answer.error_code == Error.INVALID_PRINCIPAL_TYPE


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({}, Error.DELEGATION_TOKEN_AUTH_DISABLED),
        (
            {"admin": SECURED, "bootstrap": (FeatureLevelRecord(name="metadata.version", feature_level=13),)},
            Error.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_token_requests_are_refused_without_support(settings: dict[str, Any], error: Error) -> None:
    side = InProcess(**settings)
    asked: list[Callable[[], int]] = [
        lambda: create(side).error_code,
        lambda: renew(side, b"x", 1)[0],
        lambda: expire(side, b"x", 1)[0],
    ]
    assert [each() for each in asked] == [error] * 3


def test_token_requests_need_a_login_without_a_token() -> None:
    side = InProcess(admin=SECURED)
    assert create(side, Caller("User", "alice", is_token=True)).error_code == Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    listed = side.ask(DescribeDelegationTokenRequest(owners=None), 3)
    assert isinstance(listed, DescribeDelegationTokenResponse)
    assert listed.error_code == Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
