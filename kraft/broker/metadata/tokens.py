"""The delegation tokens that a client may see (Kafka: `KafkaApis.handleDescribeTokensRequest`,
`DelegationTokenManager.filterToken`; KIP-48, KIP-373).
"""

from __future__ import annotations

from collections.abc import Generator

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.tokens import token_hmac
from kraft.config.described import Secret
from kraft.handling.rights import Permissions
from metadata_log.image import DelegationToken, MetadataImage
from metadata_log.image.persistent_map import in_key_order
from transport.protocol.errors import Error
from transport.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


def describe_tokens(
    image: MetadataImage, request: DescribeDelegationTokenRequest, permissions: Permissions, secret: Secret | None
) -> Generator[None, None, DescribeDelegationTokenResponse]:
    """The tokens of the owners that the request names; of all owners if the request names none.

    A client sees its own tokens, those that it may renew, and those with the right to describe them or the tokens of
    their owner. Without a `secret` (`delegation.token.secret.key`) there are no tokens.
    """
    if secret is None:
        return DescribeDelegationTokenResponse(error_code=Error.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = {f"{one.principal_type}:{one.principal_name}" for one in request.owners}
    delegation_tokens: list[DescribedDelegationToken] = []
    for token_id, token in in_key_order(image.tokens.by_id):
        principals = {token.owner, token.requester, *token.renewers}
        if (owners is None or not owners.isdisjoint(principals)) and _may_see(permissions, token, principals):
            delegation_tokens.append(_described(token, token_hmac(secret, token_id)))
        yield None
    return DescribeDelegationTokenResponse(tokens=delegation_tokens)


def _may_see(permissions: Permissions, token: DelegationToken, principals: set[str]) -> bool:
    return (
        permissions.caller.principal in principals
        or permissions.may(AclOperation.DESCRIBE, AclResource.DELEGATION_TOKEN, token.token_id)
        or permissions.may(AclOperation.DESCRIBE_TOKENS, AclResource.USER, token.owner)
    )


def _described(token: DelegationToken, hmac: bytes) -> DescribedDelegationToken:
    owner, requester = token.owner.partition(":"), token.requester.partition(":")
    renewers = [one.partition(":") for one in token.renewers]
    return DescribedDelegationToken(
        principal_type=owner[0],
        principal_name=owner[2],
        token_requester_principal_type=requester[0],
        token_requester_principal_name=requester[2],
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[DescribedDelegationTokenRenewer(kind, name) for kind, _, name in renewers],
    )
