"""The secret of a delegation token (Kafka: `DelegationTokenManager.createHmac`; KIP-48)."""

from __future__ import annotations

from hmac import digest
from typing import Annotated, Final

from msgspec import Struct

from kraft.config.described import Secret
from kraft.config.key import Key
from kraft.config.settings_reader import SettingsReader

_SECRET: Final = "delegation.token.secret.key"


def _secret(reader: SettingsReader) -> Secret | None:
    return reader.secret(_SECRET)


class TokenSettings(Struct, frozen=True, kw_only=True):
    """The settings of delegation tokens, which all controllers and brokers share."""

    secret: Annotated[Secret | None, Key(_SECRET, read=_secret)] = None
    """The secret from which tokens derive; None disables tokens."""
    max_lifetime_ms: Annotated[int, Key("delegation.token.max.lifetime.ms")] = 604_800_000
    expiry_time_ms: Annotated[int, Key("delegation.token.expiry.time.ms")] = 86_400_000
    check_interval_ms: Annotated[int, Key("delegation.token.expiry.check.interval.ms")] = 3_600_000


def token_hmac(secret: Secret | None, token_id: str) -> bytes:
    """The secret of the token's holder, derived from the token id, so that no record has to store it."""
    assert secret is not None, "tokens are disabled"
    return digest(secret.value.encode(), token_id.encode(), "sha512")
