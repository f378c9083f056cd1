"""The security protocols of a quorum as rows of a matrix: what a node, a broker and a client need for each of them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from joserfc import jwt
from joserfc.jwk import RSAKey
from msgspec import Struct

from support.interop.certificates import Stores, leaf
from support.interop.real_kafka import CLUSTER_ID, QUIET, QuorumLayout, free_ports

MODULES: Final = "org.apache.kafka.common.security"
OAUTH: Final = f"{MODULES}.oauthbearer"
PASSWORDS: Final = {"node": "n-secret", "admin": "a-secret", "broker": "b-secret"}
"""The users of every row, with the passwords of those that have one."""
SUPER_USERS: Final = ";".join(f"User:{user}" for user in ("ANONYMOUS", *PASSWORDS))
ISSUER: Final = "https://idp.test"
LIFETIME_S: Final = 3600


class Row(Struct, frozen=True):
    """A security protocol with its mechanism; the name is that of a listener."""

    name: str
    protocol: str
    mechanism: str = ""
    has_certificate: bool = False
    """Whether clients have to have a certificate."""

    @property
    def is_scram(self) -> bool:
        return self.mechanism.startswith("SCRAM")


ROWS: Final = (
    Row("TLS", "SSL"),
    Row("MTLS", "SSL", has_certificate=True),
    Row("PLAIN", "SASL_SSL", "PLAIN"),
    Row("SCRAM256", "SASL_SSL", "SCRAM-SHA-256"),
    Row("SCRAM512", "SASL_SSL", "SCRAM-SHA-512"),
    Row("OAUTH", "SASL_SSL", "OAUTHBEARER"),
    Row("CLEAR", "SASL_PLAINTEXT", "PLAIN"),
)
ADD_SCRAM: Final = tuple(
    option
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    for user in ("admin", "broker")
    for option in ("--add-scram", f"{mechanism}=[name={user},password={PASSWORDS[user]}]")
)
"""Options of `kraft format` for the users of SCRAM."""


class Secrets:
    """The certificates, keys and tokens of a test in a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stores = {user: Stores(root / "stores", leaf(user), user) for user in PASSWORDS}
        key = RSAKey.generate_key(2048, {"kid": "r1"}, auto_kid=False)
        self.keys = root / "jwks.json"
        self.keys.write_text(json.dumps({"keys": [key.as_dict(private=False, use="sig", alg="RS256")]}))
        self.tokens = {user: root / f"{user}.jwt" for user in PASSWORDS}
        now = int(time.time())
        for user, path in self.tokens.items():
            claims = {"sub": user, "iss": ISSUER, "aud": "kafka", "iat": now, "exp": now + LIFETIME_S, "scope": "kafka"}
            path.write_text(jwt.encode({"alg": "RS256", "kid": "r1"}, claims, key))

    @property
    def java_options(self) -> str:
        """The properties of a JVM that may read the keys and the tokens."""
        files = (self.keys, *self.tokens.values())
        prefix = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
        return f"{prefix}.urls={','.join(one.as_uri() for one in files)} {prefix}.files={','.join(map(str, files))}"

    def _trust(self, prefix: str = "") -> tuple[str, ...]:
        trusted = self.stores["node"].trust_pem
        return f"{prefix}ssl.truststore.type=PEM", f"{prefix}ssl.truststore.location={trusted}"

    def _key(self, user: str, prefix: str = "") -> tuple[str, ...]:
        return f"{prefix}ssl.keystore.type=PEM", f"{prefix}ssl.keystore.location={self.stores[user].pem}"

    def _token(self, user: str, prefix: str = "") -> tuple[str, ...]:
        return (
            f"{prefix}sasl.login.callback.handler.class={OAUTH}.OAuthBearerLoginCallbackHandler",
            f"{prefix}sasl.oauthbearer.token.endpoint.url={self.tokens[user].as_uri()}",
        )

    def of_listener(self, row: Row, name: str, *, logs_in: bool) -> list[str]:
        """The settings of a listener; `logs_in` is whether the node logs in at others there, too."""
        prefix = f"listener.name.{name.lower()}."
        lines: list[str] = []
        if row.protocol in ("SSL", "SASL_SSL"):
            lines += [*self._key("node", prefix), *self._trust(prefix)]
            lines.append(f"{prefix}ssl.client.auth={'required' if row.has_certificate else 'none'}")
        if not row.mechanism:
            return lines
        jaas = f"{prefix}{row.mechanism.lower()}.sasl.jaas.config"
        lines.append(f"{prefix}sasl.enabled.mechanisms={row.mechanism}")
        if row.mechanism == "PLAIN":
            own = f'username="node" password="{PASSWORDS["node"]}"'
            users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
            lines.append(f"{jaas}={MODULES}.plain.PlainLoginModule required {own} {users};")
        elif row.is_scram:
            own = f' username="node" password="{PASSWORDS["node"]}"' if logs_in else ""
            lines.append(f"{jaas}={MODULES}.scram.ScramLoginModule required{own};")
        else:
            handler = f"{prefix}oauthbearer.sasl.server.callback.handler.class"
            lines += [
                f"{jaas}={OAUTH}.OAuthBearerLoginModule required;",
                f"{handler}={OAUTH}.OAuthBearerValidatorCallbackHandler",
                f"{prefix}sasl.oauthbearer.jwks.endpoint.url={self.keys.as_uri()}",
                f"{prefix}sasl.oauthbearer.expected.audience=kafka",
                f"{prefix}sasl.oauthbearer.expected.issuer={ISSUER}",
            ]
            if logs_in:
                lines += self._token("node", f"{prefix}oauthbearer.")
        if logs_in:
            lines.append(f"sasl.mechanism.controller.protocol={row.mechanism}")
        return lines

    def of_client(self, row: Row, user: str = "admin") -> str:
        """The path of a file for `--command-config`."""
        path = self.root / f"{user}-{row.name}.properties"
        lines = [f"security.protocol={row.protocol}", *self._of_user(row, user, "", "")]
        path.write_text("".join(f"{line}\n" for line in lines))
        return str(path)

    def _of_user(self, row: Row, user: str, prefix: str, of_mechanism: str) -> list[str]:
        lines: list[str] = []
        if row.protocol in ("SSL", "SASL_SSL"):
            lines += self._trust(prefix)
        if row.has_certificate:
            lines += self._key(user, prefix)
        if not row.mechanism:
            return lines
        jaas = f"{of_mechanism}sasl.jaas.config"
        key = "sasl.mechanism.controller.protocol" if prefix else "sasl.mechanism"
        lines.append(f"{key}={row.mechanism}")
        if row.mechanism == "OAUTHBEARER":
            return [*lines, f"{jaas}={OAUTH}.OAuthBearerLoginModule required;", *self._token(user, of_mechanism)]
        module = "scram.ScramLoginModule" if row.is_scram else "plain.PlainLoginModule"
        return [
            *lines,
            f'{jaas}={MODULES}.{module} required username="{user}" password="{PASSWORDS[user]}";',
        ]

    def of_broker(self, row: Row, voter_port: int) -> Path:
        """The configuration of a broker of Kafka that reaches controllers in this way, and has clients in the clear."""
        prefix = f"listener.name.{row.name.lower()}."
        path = self.root / f"broker-{row.name}.properties"
        lines = (
            "process.roles=broker",
            "node.id=101",
            f"log.dirs={self.root / f'broker-{row.name}'}",
            f"controller.listener.names={row.name}",
            f"listener.security.protocol.map={row.name}:{row.protocol},OPEN:PLAINTEXT",
            f"listeners=OPEN://127.0.0.1:{free_ports(1)[0]}",
            "inter.broker.listener.name=OPEN",
            f"controller.quorum.voters=1@127.0.0.1:{voter_port}",
            "offsets.topic.replication.factor=1",
            *self._of_user(row, "broker", prefix, f"{prefix}{row.mechanism.lower()}."),
        )
        path.write_text("".join(f"{line}\n" for line in lines))
        return path


AUTHORIZED: Final = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    f"super.users={SUPER_USERS}",
    "ssl.principal.mapping.rules=RULE:^CN=([a-z0-9]+),.*$/$1/,DEFAULT",
)


class OneController:
    """One controller with a listener of each row; the voters speak in the clear."""

    def __init__(self, root: Path) -> None:
        self.secrets = Secrets(root)
        port, *ports = free_ports(1 + len(ROWS))
        self.ports = {row.name: at for row, at in zip(ROWS, ports, strict=True)}
        named = {"CONTROLLER": port} | self.ports
        protocols = {"CONTROLLER": "PLAINTEXT"} | {row.name: row.protocol for row in ROWS}
        lines = [
            f"controller.listener.names={','.join(named)}",
            f"listeners={','.join(f'{name}://127.0.0.1:{at}' for name, at in named.items())}",
            f"listener.security.protocol.map={','.join(f'{name}:{one}' for name, one in protocols.items())}",
            *AUTHORIZED,
        ]
        for row in ROWS:
            lines += self.secrets.of_listener(row, row.name, logs_in=False)
        self.layout = QuorumLayout(root, CLUSTER_ID, {1: port}, (*QUIET, *lines))

    def where(self, row: Row) -> tuple[str, ...]:
        """The options of a tool that reaches the controller in this way."""
        at = f"127.0.0.1:{self.ports[row.name]}"
        return ("--bootstrap-controller", at, "--command-config", self.secrets.of_client(row))


def quorum_layout(root: Path, secrets: Secrets, row: Row, nodes: Sequence[int], *, is_dynamic: bool) -> QuorumLayout:
    """Controllers that speak to each other, and to clients, in one way only."""
    lines = (
        f"listener.security.protocol.map=CONTROLLER:{row.protocol}",
        *AUTHORIZED,
        *secrets.of_listener(row, "CONTROLLER", logs_in=True),
    )
    # A controller of a row with certificates presents one at others, too: its own key store serves both ends.
    ports = dict(zip(nodes, free_ports(len(nodes)), strict=True))
    return QuorumLayout(root, CLUSTER_ID, ports, (*QUIET, *lines), is_dynamic=is_dynamic)
