"""Describes SCRAM credentials of users (Kafka: `ScramImage.describe`; KIP-554)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kraft.access.errors import bounded
from kraft.reads.reading import Reading
from kraft.steps import Answering
from metadata_log.image.persistent_map import Map, in_key_order, in_key_order_by_runs
from metadata_log.image.scram import ScramCredential
from transport.protocol.errors import Error
from transport.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def describe_scram_credentials(reading: Reading, request: DescribeUserScramCredentialsRequest) -> Answering:
    """The mechanisms and iterations of the named users; of all users if the list is null or empty.

    Kafka's controllers do not serve this request. This response equals that of Kafka's brokers.
    """
    by_user = reading.image.scram.by_user
    named = Counter(user.name for user in request.users or ())
    results = []
    for user in named or _users(by_user):
        yield None
        if user is None:
            continue
        if named[user] > 1:
            text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            results.append(_undescribed(user, Error.DUPLICATE_RESOURCE, text))
        elif user not in by_user:
            text = f"Attempt to describe a user credential that does not exist: {user}"
            results.append(_undescribed(user, Error.RESOURCE_NOT_FOUND, text))
        else:
            infos = [
                CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
                for mechanism, credential in in_key_order(by_user[user])
            ]
            results.append(DescribeUserScramCredentialsResult(user=user, credential_infos=infos))
    return DescribeUserScramCredentialsResponse(results=results)


def _users(by_user: Map[str, Map[int, ScramCredential]]) -> Iterator[str | None]:
    """All users in their order, with a None now and then."""
    for entry in in_key_order_by_runs(by_user):
        yield None if entry is None else entry[0]


def _undescribed(user: str, error: Error, text: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=user, error_code=error, error_message=bounded(text))
