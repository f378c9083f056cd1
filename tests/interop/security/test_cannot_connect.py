"""Failures that time does not cure end every command at once, with the cause and what cures it."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from msgspec import Struct

from security_rows import ADD_SCRAM, MODULES, ROWS, OneController
from support.interop.certificates import another_authority, issue, server_context
from support.interop.our_nodes import kraft_here, our_controller, told
from support.interop.real_kafka import CLUSTER_ID, KafkaInstallation, eventually, kafka_controller, running
from support.kraft.recovery_data import write_description

GUEST = ("--add-scram", "SCRAM-SHA-256=[name=guest,password=g-secret]")
PATIENCE = ("--timeout", "60")
"""So long that a command which waits for it is told apart from one on a slow machine."""
AT_ONCE_SECONDS = 12.0
JAVA = re.compile(r"org\.apache|java\.|Exception|\bat [a-z]+\.|@[0-9a-f]{5,}|Request\(")
OF_CLIENTS = "--command-config"

COMMANDS = (
    ("quorum", "status"),
    ("quorum", "status", "--why"),
    ("quorum", "replication"),
    ("topics", "list"),
    ("topics", "describe", "t"),
    ("configs", "describe", "topic"),
    ("configs", "describe", "broker-logger", "1"),
    ("brokers", "list"),
    ("acls", "list"),
    ("reassign", "list"),
    ("elect", "preferred", "--all"),
    ("features", "describe"),
    ("users", "list"),
    ("watch",),
    ("top", "--once"),
    ("archive", "--to", "ARCHIVE", "--from", "HERE"),
    ("doctor", "examine"),
    ("recover", "verify", "RECOVERED"),
    ("recover", "unblock-ghost", "7"),
    ("produce", "t"),
    ("consume", "t"),
)


class Case(Struct, frozen=True):
    """A client that cannot connect, what it is told, and what the hint names."""

    name: str
    listener: str
    lines: tuple[str, ...] | None
    """Those of the file of `--command-config`; None without one."""
    told: str
    hint: str


def plain(user: str, password: str) -> str:
    return f'sasl.jaas.config={MODULES}.plain.PlainLoginModule required username="{user}" password="{password}";'


def scram(user: str, password: str) -> str:
    return f'sasl.jaas.config={MODULES}.scram.ScramLoginModule required username="{user}" password="{password}";'


CLEAR = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN")
TLS = ("security.protocol=SSL", "ssl.truststore.type=PEM", "ssl.truststore.location=TRUSTED")
SASL_SSL = ("security.protocol=SASL_SSL", *TLS[1:])
CASES = (
    Case("password", "CLEAR", (*CLEAR, plain("admin", "wrong")), "refuses the login by PLAIN", "sasl.jaas.config in"),
    Case(
        "scram-password",
        "SCRAM256",
        (*SASL_SSL, "sasl.mechanism=SCRAM-SHA-256", scram("admin", "wrong")),
        "refuses the login by SCRAM-SHA-256",
        "sasl.jaas.config in",
    ),
    Case(
        "mechanism",
        "SCRAM256",
        (*SASL_SSL, "sasl.mechanism=PLAIN", plain("admin", "a-secret")),
        "does not accept PLAIN; it accepts SCRAM-SHA-256",
        "sasl.mechanism",
    ),
    Case("clear-at-tls", "TLS", None, "", "--command-config FILE"),
    Case("clear-at-login", "CLEAR", None, "does its listener expect a login?", "--command-config FILE"),
    Case("tls-at-clear", "CONTROLLER", TLS, "does the peer speak TLS?", "security.protocol=SSL in"),
    Case("login-at-clear", "CONTROLLER", (*CLEAR, plain("admin", "a-secret")), "has no login", "SASL_PLAINTEXT"),
    Case("tls-at-login", "PLAIN", TLS, "does its listener expect a login?", "security.protocol=SSL in"),
    Case(
        "authority",
        "TLS",
        ("security.protocol=SSL", "ssl.truststore.type=PEM", "ssl.truststore.location=UNKNOWN"),
        "the peer's certificate is not accepted: ",
        "ssl.truststore.location",
    ),
    Case("no-certificate", "MTLS", TLS, "certificate", "ssl.keystore.location"),
    Case("host-name", "ELSEWHERE", TLS, "IP address mismatch", "ssl.truststore.location"),
    Case("http", "HTTP", None, "the peer sends text that begins with 'HTTP'", "Check the port"),
    Case("tls-at-http", "HTTP", TLS, "the peer sends bytes without TLS", "security.protocol"),
    Case("no-host", "NOWHERE", None, "the host name cannot be resolved", "Check the name of the host"),
)


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that does this with each connection; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connected, _ = listener.accept()
                    with connected, suppress(OSError):
                        answer(connected)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def http(connected: socket.socket) -> None:
    connected.recv(4096)
    connected.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


def elsewhere(connected: socket.socket) -> None:
    context = server_context(issue("node", "elsewhere.test"))
    with context.wrap_socket(connected, server_side=True) as secured:
        secured.recv(1)


class Place(Struct, frozen=True):
    """A controller with all listeners, other servers, and the files of clients."""

    root: Path
    one: OneController
    ports: dict[str, int]

    def at(self, case: Case) -> str:
        return f"{'x' * 64}:9093" if case.listener == "NOWHERE" else f"127.0.0.1:{self.ports[case.listener]}"

    def config(self, name: str, lines: tuple[str, ...] | None) -> tuple[str, ...]:
        if lines is None:
            return ()
        path = self.root / f"{name}.properties"
        trusted = str(self.one.secrets.stores["node"].trust_pem)
        text = "\n".join((*lines, "")).replace("TRUSTED", trusted).replace("UNKNOWN", str(self.root / "unknown.pem"))
        path.write_text(text)
        return OF_CLIENTS, str(path)


def made(root: Path) -> OneController:
    one = OneController(root)
    told("format", "-c", str(one.layout.properties(1)), "--cluster-id", CLUSTER_ID, *ADD_SCRAM, *GUEST)
    return one


@contextmanager
def placed(one: OneController, root: Path) -> Iterator[Place]:
    another_authority().cert_pem.write_to_path(root / "unknown.pem")
    write_description(root / "recovered")
    clear = one.layout.ports[1]
    with server(http) as at_http, server(elsewhere) as at_elsewhere:
        yield Place(root, one, {**one.ports, "CONTROLLER": clear, "HTTP": at_http, "ELSEWHERE": at_elsewhere})


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("ours")
    one = made(root)
    with running(one.layout, our_controller(one.layout), name="ours"), placed(one, root) as place:
        yield place


@pytest.fixture(scope="module")
def theirs(kafka: KafkaInstallation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("theirs")
    one = made(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", one.secrets.java_options)
        with running(one.layout, kafka_controller(kafka, one.layout), name="kafka"), placed(one, root) as place:
            reach = ("quorum", "status", *one.where(ROWS[0]), "--timeout", "5")
            eventually(lambda: kraft_here(*reach).returncode == 0, "Kafka's controller leads", 60)
            yield place


def ends_at_once(place: Place, case: Case, words: tuple[str, ...], option: str = "--bootstrap-controller") -> None:
    """Run a command that cannot connect, and judge its end."""
    address = place.at(case)
    named = [
        word.replace("HERE", address)
        .replace("ARCHIVE", str(place.root / "archive"))
        .replace("RECOVERED", str(place.root / "recovered"))
        for word in words
    ]
    if "archive" not in words:
        named += ["--bootstrap-server" if words[0] in {"produce", "consume"} else option, address]
    patience = () if words[0] in {"doctor"} or words[:2] == ("recover", "verify") else PATIENCE
    before = time.monotonic()
    done = kraft_here(*named, *place.config(case.name, case.lines), *patience)
    seconds = time.monotonic() - before
    print(f"{case.name} {' '.join(words)}: {seconds:.2f} s\n{done.stderr}")
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert seconds < AT_ONCE_SECONDS, done.stderr
    error, hint = done.stderr.strip().splitlines()[-2:]
    assert error.startswith("kraft: error: ")
    assert case.told in error
    assert hint.startswith("hint: ")
    assert case.hint in hint
    assert "majority of the voters run" not in done.stderr
    assert not JAVA.search(done.stderr)
    assert "wrong" not in done.stderr  # the password


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_failure_that_time_does_not_cure_ends_a_command_at_once(ours: Place, case: Case) -> None:
    ends_at_once(ours, case, ("topics", "list"))
    ends_at_once(ours, case, ("topics", "list"), "--bootstrap-server")
    if "login?" not in case.told:  # a controller names its versions first, and Metadata is none of its requests
        ends_at_once(ours, case, ("consume", "t"))


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: "-".join(words[:2]))
def test_every_command_that_connects_ends_at_once(
    ours: Place, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()  # an input that stays open and brings nothing
    with open(reading) as source, open(writing, "w"):
        monkeypatch.setattr("sys.stdin", source)
        ends_at_once(ours, CASES[0], words)


GUESTS = ("security.protocol=SASL_SSL", *TLS[1:], "sasl.mechanism=SCRAM-SHA-256", scram("guest", "g-secret"))


def is_not_authorised(place: Place, words: tuple[str, ...]) -> None:
    before = time.monotonic()
    where = ("--bootstrap-controller", f"127.0.0.1:{place.ports['SCRAM256']}")
    done = kraft_here(*words, *where, *place.config("guest", GUESTS), *PATIENCE)
    assert time.monotonic() - before < AT_ONCE_SECONDS, done.stderr
    assert done.returncode == 1, done.stdout
    error, hint = done.stderr.strip().splitlines()[-2:]
    assert "CLUSTER_AUTHORIZATION_FAILED" in error
    assert "log in with --command-config" in hint
    assert not JAVA.search(done.stderr), done.stderr


WITHOUT_RIGHT = (("quorum", "status"), ("topics", "list"), ("features", "describe"), ("users", "list"), ("watch",))


@pytest.mark.parametrize("words", WITHOUT_RIGHT, ids=lambda words: words[0])
def test_a_user_without_the_right_is_told_at_once(ours: Place, words: tuple[str, ...]) -> None:
    is_not_authorised(ours, words)


@pytest.mark.kafka
def test_a_controller_of_kafka_is_told_apart_in_the_same_way(theirs: Place) -> None:
    for case in CASES:
        if case.listener in theirs.ports and case.listener not in {"HTTP", "ELSEWHERE"}:
            ends_at_once(theirs, case, ("topics", "list"))
    for words in WITHOUT_RIGHT:
        is_not_authorised(theirs, words)
