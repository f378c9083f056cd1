"""SCRAM credentials are put, removed and described; Kafka's controller answers the same, where it answers."""

from __future__ import annotations

from hashlib import pbkdf2_hmac
from random import Random

from metadata_log.records.metadata import FeatureLevelRecord, UserScramCredentialRecord
from metadata_log.records.scram import parse_credential
from support.differential.admin_answers import RECORDED, SECURED, disagreements, kafkas_records, our_records
from support.differential.controller_sides import InProcess
from transport.protocol.errors import Error
from transport.protocol.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from transport.protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from transport.protocol.messages.describe_user_scram_credentials import UserName

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
