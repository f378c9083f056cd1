"""Quorums with TLS or logins on their listeners, and the load generator's clients for them.

The settings are the same for Kafka's controllers and for ours: TLS 1.3, an elliptic key, PEM files, mechanism PLAIN.
"""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from load import Address, Refused, ask, connect, error_of, frame_of

from support.interop.certificates import Stores, client_context, leaf
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.headers import decode_response, encode_request
from transport.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from transport.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_SSL: Final = "SASL_SSL"
PROTOCOLS: Final = (PLAINTEXT, SSL, SASL_SSL)
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_LOGIN: Final = f'{_MODULE} required username="node" password="of-nodes" user_node="of-nodes" user_bench="of-bench";'


def settings_of(protocol: str, root: Path) -> tuple[str, ...]:
    """The lines of each node's configuration; the files of the certificate are made below `root`."""
    if protocol == PLAINTEXT:
        return ()
    stores = Stores(root / "stores", leaf("node"))
    lines = [
        f"listener.security.protocol.map=CONTROLLER:{protocol}",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={stores.pem}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={stores.trust_pem}",
    ]
    if protocol == SASL_SSL:
        lines += [
            "sasl.enabled.mechanisms=PLAIN",
            "sasl.mechanism.controller.protocol=PLAIN",
            f"listener.name.controller.plain.sasl.jaas.config={_LOGIN}",
        ]
    return tuple(lines)


def connector_of(protocol: str) -> Callable[[Address], socket.socket]:
    """Connects to a listener of this protocol: with a finished handshake, and logged in."""
    if protocol == PLAINTEXT:
        return connect
    context = client_context(version=ssl.TLSVersion.TLSv1_3)

    def secured(address: Address) -> socket.socket:
        connection = context.wrap_socket(connect(address), server_hostname=address[0])
        if protocol == SASL_SSL:
            _log_in(connection)
        return connection

    return secured


def _log_in(connection: socket.socket) -> None:
    handshake = encode_request(ApiKey.SASL_HANDSHAKE, 1, 1, "bench", SaslHandshakeRequest(mechanism="PLAIN"))
    _, answer = decode_response(ApiKey.SASL_HANDSHAKE, 1, ask(connection, _framed(handshake)))
    assert isinstance(answer, SaslHandshakeResponse)
    login = SaslAuthenticateRequest(auth_bytes=b"\0bench\0of-bench")
    frame = encode_request(ApiKey.SASL_AUTHENTICATE, 2, 2, "bench", login)
    _, done = decode_response(ApiKey.SASL_AUTHENTICATE, 2, ask(connection, _framed(frame)))
    assert isinstance(done, SaslAuthenticateResponse)
    if answer.error_code or done.error_code:
        raise Refused(f"the login ended with {Error.of(answer.error_code or done.error_code).name}")


def _framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


class SecuredClient:
    """One closed loop over TLS. A response may be several records, which come one after the other."""

    __slots__ = ("_got", "connection", "expected", "frames", "sent_at", "turn")

    def __init__(self, address: Address, frames: tuple[bytes, bytes], to: Callable[[Address], socket.socket]) -> None:
        self.frames = frames
        self.connection = to(address)
        first = ask(self.connection, frames[1])
        if error := error_of(first):
            raise Refused(f"{address} answers {error.name}")
        self.expected = _framed(first)
        self.connection.setblocking(False)
        self.turn = 0
        self.sent_at = 0.0
        self._got = b""

    def send(self) -> None:
        """Send the next of the two frames."""
        self.connection.send(self.frames[self.turn])
        self.turn ^= 1

    def receive(self) -> bool:
        """Read what has arrived; raises `Refused` for another response than the first one."""
        try:
            while len(self._got) < len(self.expected):
                data = self.connection.recv(4096)
                if not data:
                    raise Refused("the connection was closed instead of an answer")
                self._got += data
        except ssl.SSLWantReadError:
            return False
        if self._got != self.expected:
            raise Refused("an answer was not that of a committed write")
        self._got = b""
        return True


def writers(
    address: Address, clients: int, value_bytes: int, to: Callable[[Address], socket.socket]
) -> list[SecuredClient]:
    """Clients that write to one node over TLS, each to a resource of its own."""
    frames = [(frame_of(number, 0, value_bytes), frame_of(number, 1, value_bytes)) for number in range(clients)]
    return [SecuredClient(address, each, to) for each in frames]
