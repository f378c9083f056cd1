"""Delegation tokens (Kafka: `DelegationTokenImage`, `DelegationTokenDelta`; KIP-900)."""

from __future__ import annotations

from msgspec import Struct

from metadata_log.errors import ReplayError
from metadata_log.image.persistent_map import Map, with_entry, without_key
from metadata_log.records.metadata import DelegationTokenRecord, RemoveDelegationTokenRecord


class DelegationToken(Struct, frozen=True):
    """A delegation token; times are in ms. The token's secret derives from the id and is not stored."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int


class TokensImage(Struct, frozen=True):
    """Every token that was not removed; an expired token is removed later."""

    by_id: Map[str, DelegationToken] = Map()


def replay_token(image: TokensImage, record: DelegationTokenRecord) -> TokensImage:
    """Set a token; raises `ReplayError` for a principal without a type."""
    for principal in (record.owner, record.requester, *record.renewers):
        if ":" not in principal:
            raise ReplayError(f"delegation token {record.token_id} names {principal!r}, which is no principal")
    token = DelegationToken(
        token_id=record.token_id,
        owner=record.owner,
        requester=record.requester,
        renewers=record.renewers,
        issue_timestamp=record.issue_timestamp,
        max_timestamp=record.max_timestamp,
        expiration_timestamp=record.expiration_timestamp,
    )
    return TokensImage(with_entry(image.by_id, token.token_id, token))


def token_record(token: DelegationToken) -> DelegationTokenRecord:
    """The record that sets a token."""
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=token.renewers,
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=token.expiration_timestamp,
        token_id=token.token_id,
    )


def replay_remove_token(image: TokensImage, record: RemoveDelegationTokenRecord) -> TokensImage:
    """Remove a token, if it exists."""
    return TokensImage(without_key(image.by_id, record.token_id)) if record.token_id in image.by_id else image
