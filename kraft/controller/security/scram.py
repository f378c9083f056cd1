"""Alters SCRAM credentials of users (Kafka: `ScramControlManager`; KIP-554)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from kraft.access.errors import ApiError
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import ControllerResult, Steps
from kraft.limits import RECORDS_PER_OPERATION
from kraft.steps import made_of
from metadata_log.image import MetadataImage
from metadata_log.records.frame import VersionedRecord
from metadata_log.records.metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from metadata_log.records.scram import ITERATIONS, MECHANISMS, SCRAM_SINCE, derived_keys
from metadata_log.serde import Message
from transport.protocol.errors import Error
from transport.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

_TWICE: Final = "A user credential cannot be altered twice in the same request"


def alter_scram_credentials(context: RequestContext, request: AlterUserScramCredentialsRequest) -> Steps:
    """Validate each user separately; a user may occur once. Deletions precede upsertions."""
    level = context.image.features.metadata_version or 0
    if level < SCRAM_SINCE:
        raise ApiError(Error.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
    records: dict[str, Message] = {}
    errors: dict[str, ApiError | None] = {}
    changes: list[tuple[str, Callable[[], Message]]] = [
        *((one.name, partial(_removal, context.image, one)) for one in request.deletions),
        *((one.name, partial(_credential, one)) for one in request.upsertions),
    ]
    for user, decide in changes:
        yield None
        if user in errors:
            # The response has the first error of each user.
            errors[user] = errors[user] or ApiError(Error.DUPLICATE_RESOURCE, _TWICE)
            continue
        try:
            records[user] = decide()
            errors[user] = None
        except ApiError as refused:
            errors[user] = refused
    accepted = tuple(VersionedRecord(record) for user, record in records.items() if errors[user] is None)
    if len(accepted) > RECORDS_PER_OPERATION:
        raise ApiError(Error.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
    results = yield from made_of(errors.items(), lambda one: _result(*one))
    return ControllerResult(accepted, AlterUserScramCredentialsResponse(results=results))


def _result(user: str, error: ApiError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(user=user, error_message=None)
    return AlterUserScramCredentialsResult(user=user, error_code=error.error, error_message=error.text)


def _check(user: str, mechanism: int) -> None:
    if not user:
        raise ApiError(Error.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism not in MECHANISMS:
        raise ApiError(Error.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


def _removal(image: MetadataImage, deletion: ScramCredentialDeletion) -> Message:
    _check(deletion.name, deletion.mechanism)
    credentials = image.scram.by_user.get(deletion.name)
    if credentials is None or deletion.mechanism not in credentials:
        raise ApiError(Error.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return RemoveUserScramCredentialRecord(name=deletion.name, mechanism=deletion.mechanism)


def _credential(upsertion: ScramCredentialUpsertion) -> Message:
    _check(upsertion.name, upsertion.mechanism)
    if upsertion.iterations < ITERATIONS[0]:
        raise ApiError(Error.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if upsertion.iterations > ITERATIONS[-1]:
        raise ApiError(Error.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not upsertion.salted_password:
        # Kafka's controller fails on this request, including its other users.
        raise ApiError(Error.UNACCEPTABLE_CREDENTIAL, "Salted password must not be empty")
    stored_key, server_key = derived_keys(MECHANISMS[upsertion.mechanism], upsertion.salted_password)
    return UserScramCredentialRecord(
        name=upsertion.name,
        mechanism=upsertion.mechanism,
        salt=upsertion.salt,
        stored_key=stored_key,
        server_key=server_key,
        iterations=upsertion.iterations,
    )
