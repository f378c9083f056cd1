"""The users of a node: SCRAM credentials and delegation tokens of its metadata (Kafka: `CredentialCache`,
`DelegationTokenCache`)."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import lru_cache
from hmac import digest

import trio

from kraft.access.tokens import TokenSettings, token_hmac
from kraft.config import Config
from kraft.security.logins import sasl_of
from metadata_log.image import MetadataImage
from metadata_log.records.scram import NUMBERS, SALT_BYTES
from transport.protocol.inbound import Principal
from transport.protocol.sasl.credentials import ScramKeys, TokenKeys
from transport.protocol.sasl.scram import LEAST_ITERATIONS, keys_of
from transport.sasl import Sasl, wall_clock_ms


class NodeUsers:
    """Looks up the users of a node in its committed metadata. Until the node has metadata, no user is known."""

    def __init__(self, config: Config) -> None:
        self.image: Callable[[], MetadataImage] | None = None
        """Returns the committed metadata; set when the node has opened its log."""
        self._token_secret = config.of(TokenSettings).secret
        logins = sasl_of(config, self.scram, self.token, wall_clock_ms)
        self.sasl: Sasl = logins.sasl
        """The logins of the node's transport."""
        self._remotes = logins.remotes

    async def keep_reading(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Let threads read the keys and the token of OAUTHBEARER, until cancelled.

        `task_status` is called after the first reads, which take some seconds at most. Failed reads are repeated.
        """
        for remote in self._remotes:
            remote.begin()
        try:
            for remote in self._remotes:
                await trio.to_thread.run_sync(remote.wait, abandon_on_cancel=True)
            task_status.started()
            if self._remotes:
                await trio.sleep_forever()
        finally:
            for remote in self._remotes:
                remote.end()

    def scram(self, mechanism: str, user: str) -> ScramKeys | None:
        """The SCRAM credential of a user."""
        if self.image is None:
            return None
        credentials = self.image().scram.by_user.get(user)
        credential = None if credentials is None else credentials.get(NUMBERS[mechanism])
        return (
            None
            if credential is None
            else ScramKeys(credential.salt, credential.stored_key, credential.server_key, credential.iterations)
        )

    def token(self, mechanism: str, token_id: str) -> TokenKeys | None:
        """The delegation token with this id. Its password is the HMAC of the token as base64 text."""
        if self.image is None or self._token_secret is None:
            return None
        token = self.image().tokens.by_id.get(token_id)
        if token is None:
            return None
        hmac = token_hmac(self._token_secret, token_id)
        kind, _, name = token.owner.partition(":")
        owner = Principal(kind, name, is_token=True)
        expires_ms = min(token.expiration_timestamp, token.max_timestamp)
        return TokenKeys(_token_keys(mechanism, base64.b64encode(hmac)), owner, expires_ms)


@lru_cache(maxsize=1024)
def _token_keys(mechanism: str, password: bytes) -> ScramKeys:
    """Cached: the keys of a token cost some milliseconds. The salt need not be random, because the password is."""
    return keys_of(mechanism, password, digest(password, b"salt", "sha256")[:SALT_BYTES], LEAST_ITERATIONS)
