"""From settings to the logins of a transport (Kafka: `SaslChannelBuilder`)."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from kraft.config.config import Config
from kraft.config.sasl_settings import LoginSettings
from transport.protocol.sasl.client import SaslLogin
from transport.protocol.sasl.credentials import ScramKeys, TokenKeys, Users
from transport.protocol.sasl.server import SaslListener
from transport.sasl import NO_SASL, Sasl

_HIDING_KEY_BYTES = 32

FindKeys = Callable[[str, str], ScramKeys | None]
"""The SCRAM credential of a mechanism and a user."""
FindToken = Callable[[str, str], TokenKeys | None]
"""The delegation token of a mechanism and a token id."""


def login_of(settings: LoginSettings | None) -> SaslLogin | None:
    """The login of a client."""
    if settings is None:
        return None
    return SaslLogin(
        mechanism=settings.mechanism, user=settings.user, password=settings.password, is_token=settings.is_token
    )


def sasl_of(config: Config, scram: FindKeys, token: FindToken) -> Sasl:
    """The logins of a node. The functions look up what the configuration does not hold.

    Args:
        config: The configuration of the node.
        scram: Finds the SCRAM credential of a mechanism and a user.
        token: Finds the delegation token of a mechanism and a token id.
    """
    settings = config.sasl
    if not settings.listeners and settings.outgoing is None:
        return NO_SASL
    hiding_key = secrets.token_bytes(_HIDING_KEY_BYTES)
    return Sasl(
        listeners={
            name: SaslListener(
                mechanisms=one.mechanisms,
                users=dict.fromkeys(
                    one.mechanisms,
                    Users(passwords=one.passwords, scram=scram, token=token, hiding_key=hiding_key),
                ),
                max_reauth_ms=one.max_reauth_ms,
                max_receive_bytes=config.sasl_max_receive_bytes,
                failed_delay_ms=config.failed_authentication_delay_ms,
            )
            for name, one in settings.listeners.items()
        },
        outgoing=login_of(settings.outgoing),
    )
