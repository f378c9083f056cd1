"""Delegation tokens, with which a client acts as the owner for a limited time (Kafka: `DelegationTokenControlManager`;
KIP-48, KIP-900).
"""

from __future__ import annotations

from hmac import compare_digest
from typing import Final

from msgspec import structs

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.caller import ANONYMOUS, Caller
from kraft.access.tokens import token_hmac
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import ControllerResult, Steps
from kraft.limits import TOKENS_PER_RUN
from kraft.steps import with_pauses
from metadata_log.image import DelegationToken
from metadata_log.image.persistent_map import in_key_order, in_key_order_by_runs
from metadata_log.image.records import TOKENS_SINCE
from metadata_log.image.tokens import token_record
from metadata_log.records.frame import VersionedRecord
from metadata_log.records.metadata import RemoveDelegationTokenRecord
from metadata_log.types import random_uuid
from transport.protocol.errors import Error
from transport.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from transport.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from transport.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from transport.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

OWNERS_SINCE: Final = 3
"""The first version of the API with an owner other than the requester (KIP-373)."""
USER: Final = "User"
NEVER: Final = -1
NO_TIME: Final = 0


def create_token(context: RequestContext, request: CreateDelegationTokenRequest) -> ControllerResult:
    """Issue a token for the caller, or for the owner that the request names."""
    requester = context.caller
    owner = requester
    if request.owner_principal_name:
        owner = Caller(request.owner_principal_type or "", request.owner_principal_name)
    if not _is_allowed(context):
        return ControllerResult(response=_uncreated(context, owner, Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, NEVER))
    if owner.principal != requester.principal and not context.may(
        AclOperation.CREATE_TOKENS, AclResource.USER, owner.principal
    ):
        return ControllerResult(response=_uncreated(context, owner, Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED, NEVER))
    error = _disabled(context)
    if error is None and any(one.principal_type != USER for one in request.renewers):
        error = Error.INVALID_PRINCIPAL_TYPE
    if error is None and not owner.type:
        # Kafka issues such a token, and then none of its nodes can read the record.
        error = Error.INVALID_PRINCIPAL_TYPE
    if error is not None:
        return ControllerResult(response=_uncreated(context, owner, error, NO_TIME))
    settings, now_ms = context.admin.tokens, context.now_ms
    lifetime_ms = settings.max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    token = DelegationToken(
        token_id=str(random_uuid(context.rng)),
        owner=owner.principal,
        requester=requester.principal,
        renewers=tuple(f"{one.principal_type}:{one.principal_name}" for one in request.renewers),
        issue_timestamp=now_ms,
        max_timestamp=now_ms + lifetime_ms,
        expiration_timestamp=min(now_ms + lifetime_ms, now_ms + settings.expiry_time_ms),
    )
    requester_shown = _requester_in_response(context)
    response = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester_shown.type,
        token_requester_principal_name=requester_shown.name,
        issue_timestamp_ms=token.issue_timestamp,
        expiry_timestamp_ms=token.expiration_timestamp,
        max_timestamp_ms=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_hmac(settings.secret, token.token_id),
    )
    return ControllerResult((_record(token),), response)


def renew_token(context: RequestContext, request: RenewDelegationTokenRequest) -> ControllerResult:
    """Extend the lifetime of a token, at most to its maximum lifetime."""
    if not _is_allowed(context):
        return ControllerResult(
            response=RenewDelegationTokenResponse(
                error_code=Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NEVER
            ),
        )
    token = _find(context, request.hmac)
    if isinstance(token, DelegationToken):
        if _has_expired(token, context.now_ms):
            token = Error.DELEGATION_TOKEN_EXPIRED
        elif not _is_its_own(token, context.caller):
            token = Error.DELEGATION_TOKEN_OWNER_MISMATCH
    if not isinstance(token, DelegationToken):
        return ControllerResult(response=RenewDelegationTokenResponse(error_code=token))
    period_ms = context.admin.tokens.expiry_time_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    expiry = min(token.max_timestamp, context.now_ms + period_ms)
    renewed = structs.replace(token, expiration_timestamp=expiry)
    return ControllerResult((_record(renewed),), RenewDelegationTokenResponse(expiry_timestamp_ms=expiry))


def expire_token(context: RequestContext, request: ExpireDelegationTokenRequest) -> ControllerResult:
    """Expire a token after a period; at once if the period is negative."""
    if not _is_allowed(context):
        return ControllerResult(
            response=ExpireDelegationTokenResponse(
                error_code=Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NEVER
            ),
        )
    token, now_ms = _find(context, request.hmac), context.now_ms
    if isinstance(token, DelegationToken) and not _is_its_own(token, context.caller):
        token = Error.DELEGATION_TOKEN_OWNER_MISMATCH
    if isinstance(token, DelegationToken) and request.expiry_time_period_ms >= 0 and _has_expired(token, now_ms):
        token = Error.DELEGATION_TOKEN_EXPIRED
    if not isinstance(token, DelegationToken):
        return ControllerResult(response=ExpireDelegationTokenResponse(error_code=token))
    if request.expiry_time_period_ms < 0:
        removal = VersionedRecord(RemoveDelegationTokenRecord(token_id=token.token_id))
        return ControllerResult((removal,), ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms))
    expiry = min(token.max_timestamp, now_ms + request.expiry_time_period_ms)
    record = _record(structs.replace(token, expiration_timestamp=expiry))
    return ControllerResult((record,), ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry))


def describe_tokens(_: RequestContext, request: DescribeDelegationTokenRequest) -> ControllerResult:
    """Refuse the request as unauthenticated. Brokers describe tokens for their clients and do not forward this request.

    Kafka's controllers announce the API and fail on its requests.
    """
    response = DescribeDelegationTokenResponse(error_code=Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    return ControllerResult(response=response)


def remove_expired(context: RequestContext) -> Steps:
    """Remove expired tokens; runs each `delegation.token.expiry.check.interval.ms`."""
    removals: list[VersionedRecord] = []
    for entry in with_pauses(in_key_order_by_runs(context.image.tokens.by_id)):
        if entry is None:
            yield None
        elif _has_expired(entry[1], context.now_ms):
            removals.append(VersionedRecord(RemoveDelegationTokenRecord(token_id=entry[0])))
            if len(removals) == TOKENS_PER_RUN:
                break
    return ControllerResult(tuple(removals))


def _is_allowed(context: RequestContext) -> bool:
    """Whether the caller authenticated by other means than a token; an unauthenticated listener does not qualify."""
    is_authenticated = context.forwarded or context.caller.principal != ANONYMOUS.principal
    return is_authenticated and not context.caller.is_token


def _disabled(context: RequestContext) -> Error | None:
    if context.admin.tokens.secret is None:
        return Error.DELEGATION_TOKEN_AUTH_DISABLED
    if (context.image.features.metadata_version or 0) < TOKENS_SINCE:
        return Error.UNSUPPORTED_VERSION
    return None


def _uncreated(context: RequestContext, owner: Caller, error: Error, time: int) -> CreateDelegationTokenResponse:
    requester = _requester_in_response(context)
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=time,
        expiry_timestamp_ms=time,
        max_timestamp_ms=time,
    )


def _requester_in_response(context: RequestContext) -> Caller:
    """The requester as the response names the caller; old versions of the response have no such field."""
    return context.caller if context.version >= OWNERS_SINCE else Caller("", "")


def _find(context: RequestContext, hmac: bytes) -> DelegationToken | Error:
    """The token with this HMAC, or the error if there is none."""
    disabled = _disabled(context)
    if disabled is not None:
        return disabled
    for token_id, token in in_key_order(context.image.tokens.by_id):
        if compare_digest(token_hmac(context.admin.tokens.secret, token_id), hmac):
            return token
    return Error.DELEGATION_TOKEN_NOT_FOUND


def _has_expired(token: DelegationToken, now_ms: int) -> bool:
    return min(token.max_timestamp, token.expiration_timestamp) < now_ms


def _is_its_own(token: DelegationToken, caller: Caller) -> bool:
    return caller.principal in (token.owner, *token.renewers)


def _record(token: DelegationToken) -> VersionedRecord:
    return VersionedRecord(token_record(token))
