"""The secret of a delegation token (Kafka: `DelegationTokenManager.createHmac`; KIP-48)."""

from __future__ import annotations

from hmac import digest

from kraft.config.described import Secret


def token_hmac(secret: Secret | None, token_id: str) -> bytes:
    """The secret of the token's holder, derived from the token id, so that no record has to store it."""
    assert secret is not None, "tokens are disabled"
    return digest(secret.value.encode(), token_id.encode(), "sha512")
