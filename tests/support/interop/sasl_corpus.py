"""Logins that were recorded at a controller of Apache Kafka 4.3.1, and the users that it had."""

from __future__ import annotations

import base64
import json
import lzma
from collections.abc import Callable
from functools import cache
from typing import Any

from msgspec.structs import replace

from kraft.config.oauth_settings import TokenRules
from kraft.security.bearer_tokens import judge_of, read_keys
from kraft.security.remote import Remote
from support import DATA
from transport.protocol.inbound import Principal
from transport.protocol.sasl.credentials import MECHANISMS, ScramKeys, TokenKeys, Users
from transport.protocol.sasl.scram import keys_of
from transport.protocol.sasl.server import SaslListener

RECORDED = DATA / "sasl.json.xz"
HASH_ORDER = ("PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER")
"""The enabled mechanisms in the order of Java's hash map, in which Kafka lists them."""
SALTS = {"SCRAM-SHA-256": "salt256", "SCRAM-SHA-512": "salt512"}


@cache
def recorded() -> dict[str, Any]:
    """The content of the file."""
    found: dict[str, Any] = json.loads(lzma.decompress(RECORDED.read_bytes()))
    return found


def users(*, token_salt: bytes = b"", token_expires_ms: int = 0) -> Users:
    """The users of the recorded controller, with its delegation token."""
    known = recorded()["credentials"]
    token = known["token"]

    def scram(mechanism: str, user: str) -> ScramKeys | None:
        found = known["scram"].get(user)
        if found is None:
            return None
        salt = base64.b64decode(found[SALTS[mechanism]])
        return keys_of(mechanism, found["password"].encode(), salt, found["iterations"])

    def of_token(mechanism: str, token_id: str) -> TokenKeys | None:
        if token_id != token["id"]:
            return None
        keys = keys_of(mechanism, token["hmac_base64"].encode(), token_salt, 4096)
        return TokenKeys(keys, Principal(name=token["owner"], is_token=True), token_expires_ms)

    return Users(passwords=known["plain"], scram=scram, token=of_token, hiding_key=b"a secret of the node")


def listener(
    known: Users, *, max_reauth_ms: int = 0, name: str = "SASL", now_ms: Callable[[], int] = lambda: 0
) -> SaslListener:
    """A listener of the recorded controller. JWT takes signed tokens, and the others take tokens without signature."""
    is_signed = name == "JWT"
    if is_signed:
        expected = recorded()["credentials"]["jwt_expected"]
        content = json.dumps(recorded()["credentials"]["jwks"]).encode()
        keys = Remote("the recorded keys", lambda: (read_keys(content), 3600.0))
        keys.read_once()
        rules = TokenRules(
            keys_url="file:///keys",
            audiences=(expected["audience"],),
            issuer=expected["issuer"],
            skew_ms=expected["clock_skew_s"] * 1000,
        )
        judge = judge_of(rules, keys, now_ms)
    else:
        judge = judge_of(TokenRules(keys_url=None, skew_ms=0), None, now_ms)
    return SaslListener(
        mechanisms=("OAUTHBEARER",) if is_signed else HASH_ORDER,
        users=dict.fromkeys(MECHANISMS, replace(known, bearer=judge)),
        max_reauth_ms=dict.fromkeys(MECHANISMS, max_reauth_ms),
    )
