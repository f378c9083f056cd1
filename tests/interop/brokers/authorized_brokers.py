"""Brokers with an authorizer, at which clients log in: ours, and beside it one of Kafka."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kraft.config.keys import STANDARD_AUTHORIZER
from metadata_log.serde import Message, schema_of
from our_brokers import SERVING
from support.interop.our_nodes import our_controller, our_format, told
from support.interop.real_kafka import KafkaInstallation, Process, QuorumLayout, eventually, free_ports, running
from support.wire import ANSWER_SECONDS, active_controller, framed
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.frames import FrameReader
from transport.protocol.headers import decode_response, encode_request
from transport.protocol.messages import SaslAuthenticateRequest, SaslHandshakeRequest
from transport.protocol.messages.sasl_authenticate import SaslAuthenticateResponse

OURS: Final = 101
THEIRS: Final = 201
PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
RULES: Final = (f"authorizer.class.name={STANDARD_AUTHORIZER}", "super.users=User:ANONYMOUS;User:admin")
"""Controllers and brokers come by listeners without a login, and clients by one with a login."""
SMALL: Final = ("offsets.topic.num.partitions=1", "offsets.topic.replication.factor=1")


class Client:
    """One connection of a user, with a login by PLAIN."""

    def __init__(self, port: int, user: str, password: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
        self._reader = FrameReader()
        self._ids = count()
        self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), 2)
        assert isinstance(answer, SaslAuthenticateResponse)
        self.login = answer

    def ask(self, message: Message, version: int) -> Message:
        """The answer to one request."""
        api_key = schema_of(type(message)).api_key
        assert api_key is not None
        self._socket.sendall(framed(encode_request(api_key, version, next(self._ids), "c", message, apis=ALL_APIS)))
        frames: list[bytes] = []
        while not frames:
            data = self._socket.recv(1 << 16)
            assert data, f"the broker closed the connection instead of answering {type(message).__name__}"
            frames = self._reader.feed(data)
        return decode_response(api_key, version, frames[0], apis=ALL_APIS)[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, bad: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()


class AuthorizedBrokers:
    """A controller of ours, and brokers with a listener for brokers and one for clients with logins."""

    def __init__(self, layout: QuorumLayout, users: tuple[str, ...], settings: tuple[str, ...]) -> None:
        self.layout = layout
        self.ports: dict[int, int] = {}
        """The port of the listener for clients, by broker."""
        self.processes: dict[int, Process] = {}
        self._users = users
        self._settings = settings

    def _properties(self, broker: int) -> Path:
        inside, outside = free_ports(2)
        self.ports[broker] = outside
        users = " ".join(f'user_{name}="{name}-secret"' for name in self._users)
        path = self.layout.root / f"broker-{broker}.properties"
        lines = (
            "process.roles=broker",
            f"node.id={broker}",
            f"log.dirs={self.layout.root / f'broker-{broker}'}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
            f"listeners=INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.1:{outside}",
            "inter.broker.listener.name=INSIDE",
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
            f"listener.name.outside.plain.sasl.jaas.config={PLAIN} required {users};",
            f"listener.name.outside.scram-sha-256.sasl.jaas.config={SCRAM} required;",
            f"controller.quorum.voters={self.layout.voters}",
            "broker.heartbeat.interval.ms=500",
            *RULES,
            *SMALL,
            *self._settings,
        )
        path.write_text("".join(f"{line}\n" for line in lines))
        path.chmod(0o600)
        told("format", "-c", str(path), "--cluster-id", self.layout.cluster_id)
        return path

    def start_ours(self, broker: int = OURS) -> None:
        """Start a broker of ours."""
        command = [sys.executable, "-m", "kraft", "serve", "-c", str(self._properties(broker))]
        self.processes[broker] = Process(command, self.layout.root / f"broker-{broker}.log")
        self.processes[broker].wait_for(SERVING)

    def begin_kafkas(self, kafka: KafkaInstallation, broker: int = THEIRS) -> Process:
        """Begin to start a broker of Kafka; the caller waits for the process."""
        command = kafka.command("kafka.Kafka", str(self._properties(broker)), log="info", heap="256m")
        self.processes[broker] = Process(command, self.layout.root / f"broker-{broker}.log")
        return self.processes[broker]

    def client(self, broker: int, user: str) -> Client:
        """A connection of a user to a broker."""
        client = Client(self.ports[broker], user, f"{user}-secret")
        assert client.login.error_code == Error.NONE, client.login
        return client


@contextmanager
def authorized_brokers(root: Path, *users: str, settings: tuple[str, ...] = ()) -> Iterator[AuthorizedBrokers]:
    """A controller, and the brokers that the block starts, until the block ends."""
    more = ("controller.quorum.append.linger.ms=0", "broker.session.timeout.ms=6000", *RULES)
    layout = QuorumLayout(root, "MkU3OEVBNTcwNTJENDM2Qg", dict(zip((1,), free_ports(1), strict=True)), more)
    our_format(layout)
    with running(layout, our_controller(layout), name="ours"):
        eventually(lambda: active_controller(layout.ports[1]) == 1, "the controller is active")
        cluster = AuthorizedBrokers(layout, users, settings)
        try:
            yield cluster
        finally:
            for process in cluster.processes.values():
                if process.popen.poll() is None:
                    process.popen.send_signal(signal.SIGKILL)
                    process.popen.wait()
