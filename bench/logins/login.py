"""The processor time of a login at a server, by mechanism, for right and for wrong credentials.

One process, no sockets: the frames of a client go to `SaslServer`, and only the server's part is timed. The figure is
the least of the rounds, in microseconds a login. Keys of tokens are those of the name: RSA of 2048 bits, or P-256.
`python bench/logins/login.py`
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from itertools import count

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from kraft.config.oauth_settings import TokenRules
from kraft.security.bearer_tokens import judge_of, read_keys
from kraft.security.remote import Remote
from transport.protocol.login import LoginRefused, PeerRefused
from transport.protocol.sasl.client import SaslClient, SaslLogin
from transport.protocol.sasl.credentials import MECHANISMS, Users
from transport.protocol.sasl.scram import LEAST_ITERATIONS, keys_of
from transport.protocol.sasl.server import SaslListener, SaslServer

ROUNDS = 30
LOGINS = 20
NOW = int(time.time())
VERSIONS = bytes.fromhex("7ffffff80000 00000002 0011 0000 0001 0024 0000 0002")
RSA, EC = (
    RSAKey.generate_key(2048, {"kid": "r"}, auto_kid=False),
    ECKey.generate_key("P-256", {"kid": "e"}, auto_kid=False),
)
KEYS = {name: keys_of(name, b"right", b"salt", LEAST_ITERATIONS) for name in MECHANISMS if name.startswith("SCRAM")}


def listener() -> SaslListener:
    document = json.dumps({"keys": [key.as_dict(private=False) for key in (RSA, EC)]}).encode()
    keys = Remote("keys", lambda: (read_keys(document), 60.0))
    keys.read_once()
    users = Users(
        passwords={"alice": "right"},
        scram=lambda mechanism, user: KEYS[mechanism] if user == "alice" else None,
        bearer=judge_of(TokenRules(keys_url="file:///keys"), keys, lambda: NOW * 1000),
        hiding_key=b"hidden",
    )
    return SaslListener(mechanisms=MECHANISMS, users=dict.fromkeys(MECHANISMS, users))


def logins() -> Iterator[tuple[str, SaslLogin]]:
    claims = {"sub": "alice", "iat": NOW, "exp": NOW + 3600}
    for mechanism in MECHANISMS[:-1]:
        yield f"{mechanism}, right", SaslLogin(mechanism=mechanism, user="alice", password="right")
        yield f"{mechanism}, wrong", SaslLogin(mechanism=mechanism, user="alice", password="wrong")
    for name, key, algorithm in (("RSA", RSA, "RS256"), ("P-256", EC, "ES256")):
        token = jwt.encode({"alg": algorithm, "kid": key.kid}, claims, key)
        bad = token[:-8] + "AAAAAAAA"
        yield f"OAUTHBEARER {name}, right", SaslLogin(mechanism="OAUTHBEARER", bearer=partial(str, token))
        yield f"OAUTHBEARER {name}, wrong", SaslLogin(mechanism="OAUTHBEARER", bearer=partial(str, bad))


def seconds(listening: SaslListener, login: SaslLogin) -> float:
    """The server's time for one login."""
    nonces = count()
    client = SaslClient(login, client_id="", nonce=lambda: f"client{next(nonces)}")
    server = SaslServer(listening, now_ms=lambda: NOW * 1000, nonce=lambda: f"server{next(nonces)}")
    server.judge(client.begin())
    frame, spent = client.answer(VERSIONS), 0.0
    while frame is not None:
        began = time.perf_counter()
        try:
            answer = server.judge(frame)
        except PeerRefused as refused:
            answer = refused.answer
        spent += time.perf_counter() - began
        try:
            frame = client.answer(answer or b"")
        except LoginRefused:
            break
    return spent


def main() -> None:
    listening = listener()
    for name, login in logins():
        least = min(sum(seconds(listening, login) for _ in range(LOGINS)) / LOGINS for _ in range(ROUNDS))
        print(f"{name:<28}{least * 1e6:8.0f} µs")


if __name__ == "__main__":
    main()
