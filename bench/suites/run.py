"""Run a test suite of other people, unchanged, against brokers of ours or of Apache Kafka.

    python bench/suites/run.py SUITE --source DIR [--make ours|kafka] [--python PATH] [--dir DIR] [-- ARGUMENT ...]

SUITE is `aiokafka`, `confluent`, `kafka-python`, `kgo` or `sarama`. DIR is a checkout of the project whose suite it is,
and PATH the interpreter that has its packages and what its tests need. Further arguments go to pytest, or to `go test`.
The brokers end with the suite; the exit code is that of the suite. docs/reference/suites.md has the results.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Final

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[2] / "tests"))

import msgspec
from data_brokers.cluster import FIRST_BROKER, OURS, DataCluster
from quorums import free_ports
from serve import SESSION_SECONDS, small_topics

from support.interop.kafka_tools import KafkaTools
from support.interop.real_kafka import CONFIG_TOOL, KafkaInstallation

SHIMS: Final = Path(__file__).parent / "shims"
RELEASE: Final = "4.3.1"
"""What suites are told that the brokers are."""
PASSWORD: Final = "abcdefgh"
"""Of the stores that aiokafka's script makes."""
LOGINS: Final = "org.apache.kafka.common.security"
ACL_TOOL: Final = "org.apache.kafka.tools.AclCommand"
OPEN: Final = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found=true",
    "super.users=User:admin",
)
"""Rules can be made, and where there is none everybody may do everything."""
OPEN_CONTROLLER: Final = (*OPEN[:2], f"{OPEN[2]};User:ANONYMOUS")
"""The same at the controller, where brokers come without a name."""
SARAMA_BROKERS: Final = 5
SARAMA_PORT: Final = 29091
TOXIPROXY: Final = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0"


class Asked(msgspec.Struct):
    """A command to the stand-in for Docker."""

    words: list[str]
    more: dict[str, str] = {}


class Answer(msgspec.Struct):
    """How it ended."""

    code: int = 0
    text: str = ""


class Suite(msgspec.Struct):
    """A run of a suite."""

    make: str
    source: Path
    python: str
    root: Path
    more: Sequence[str]
    stack: ExitStack

    def brokers(
        self, count: int, *settings: str, of_each: Callable[[int], Sequence[str]] = lambda _: ()
    ) -> DataCluster:
        """Brokers that serve until the suite has ended."""
        every = (*small_topics(count), *settings)
        return DataCluster(
            self.make,
            self.root / "brokers",
            count,
            "512m",
            SESSION_SECONDS,
            self.stack,
            settings=every,
            of_each=of_each,
            of_controller=OPEN_CONTROLLER if OPEN[0] in settings else (),
        )

    def serve(self, handle: Callable[[Asked], Answer]) -> dict[str, str]:
        """Do what the stand-in for Docker is asked; returns the environment in which it finds its way here."""

        class Handler(StreamRequestHandler):
            def handle(self) -> None:
                answer = handle(msgspec.json.decode(self.rfile.readline(), type=Asked))
                self.wfile.write(msgspec.json.encode(answer) + b"\n")

        server = self.stack.enter_context(ThreadingTCPServer(("127.0.0.1", 0), Handler))
        self.stack.callback(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return {"SUITE_DRIVER": f"127.0.0.1:{server.server_address[1]}"}

    def program(self, name: str, text: str) -> dict[str, str]:
        """Put a shell script in front of all others; returns the environment in which it is found."""
        place = self.root / "bin"
        place.mkdir(exist_ok=True)
        (place / name).write_text(f"#!/bin/sh\n{text}\n")
        (place / name).chmod(0o755)
        return {"PATH": f"{place}{os.pathsep}{os.environ['PATH']}"}

    def copied(self, *names: str) -> Path:
        """A copy of parts of the source, so that what the suite imports is what is installed."""
        place = self.root / "source"
        for name in names:
            path = self.source / name
            if path.is_dir():
                shutil.copytree(path, place / name)
            else:
                place.mkdir(exist_ok=True)
                shutil.copy2(path, place / name)
        return place

    def run(self, where: Path, command: Sequence[str], **more: str) -> int:
        """Run the suite to its end."""
        return subprocess.run([*command, *self.more], cwd=where, env=os.environ | more, check=False).returncode


def confluent(suite: Suite) -> int:
    """confluent-kafka's integration tests; they find the brokers in BROKERS."""
    cluster = suite.brokers(1, *OPEN)
    where = suite.copied("tests")
    command = (suite.python, "-m", "pytest", "tests/integration")
    return suite.run(where, command, BROKERS=cluster.bootstrap)


def aiokafka(suite: Suite) -> int:
    """aiokafka's tests; its fixtures start brokers in a container, with a listener for each protocol."""
    where = suite.copied("tests", "gen-ssl-certs.sh", "docker", "pyproject.toml")
    certificates = where / "tests" / "ssl_cert"
    certificates.mkdir()
    subprocess.run(["bash", str(where / "gen-ssl-certs.sh")], cwd=certificates, check=True, capture_output=True)
    tools = suite.stack.enter_context(KafkaTools(KafkaInstallation.find()))
    server: list[str] = []
    login = suite.root / "admin.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={LOGINS}.plain.PlainLoginModule required username="admin" password="admin";\n'
    )

    def handle(asked: Asked) -> Answer:
        match asked.words:
            case ["run"]:
                server.append(start(suite, certificates, asked.more))
                return Answer()
            case ["exec", tool, *args]:
                kind = ACL_TOOL if "acls" in tool else CONFIG_TOOL
                words = iter(args)
                kept = [
                    word for word in words if not (word in ("--authorizer-properties", "--zookeeper") and next(words))
                ]
                done = tools.run(kind, f"--bootstrap-server={server[0]}", f"--command-config={login}", *kept)
                return Answer(done.returncode, done.stdout + done.stderr)
        return Answer()

    environment = suite.serve(handle) | suite.program("ktutil", "cat >/dev/null")
    environment["PYTHONPATH"] = str(SHIMS)
    command = (suite.python, "-m", "pytest", "tests", f"--docker-image=kafka:2.13_{RELEASE}", "--no-pull")
    return suite.run(where, command, **environment)


def start(suite: Suite, certificates: Path, wanted: dict[str, str]) -> str:
    """Start a broker as the script in aiokafka's container does, but for Kerberos; returns where tools reach it."""
    ports = {
        "PLAINTEXT": wanted["ADVERTISED_PORT"],
        "SSL": wanted["ADVERTISED_SSL_PORT"],
        "SASL_PLAINTEXT": wanted["ADVERTISED_SASL_PLAINTEXT_PORT"],
        "SASL_SSL": wanted["ADVERTISED_SASL_SSL_PORT"],
    }
    users = 'username="admin" password="admin" user_admin="admin" user_test="test" user_test2="test2"'
    logins = []
    for name in ("sasl_plaintext", "sasl_ssl"):
        of_listener = f"listener.name.{name}"
        logins.append(f"{of_listener}.plain.sasl.jaas.config={LOGINS}.plain.PlainLoginModule required {users};")
        logins += [
            f"{of_listener}.scram-sha-{bits}.sasl.jaas.config={LOGINS}.scram.ScramLoginModule required;"
            for bits in (256, 512)
        ]
    suite.brokers(
        1,
        "node.id=0",
        f"num.partitions={wanted['NUM_PARTITIONS']}",
        "listeners=" + ",".join(f"{name}://{wanted['ADVERTISED_HOST']}:{port}" for name, port in ports.items()),
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT," + ",".join(f"{name}:{name}" for name in ports),
        "ssl.keystore.type=JKS",
        f"ssl.keystore.location={certificates / 'br_server.keystore.jks'}",
        f"ssl.keystore.password={PASSWORD}",
        f"ssl.key.password={PASSWORD}",
        "ssl.truststore.type=JKS",
        f"ssl.truststore.location={certificates / 'br_server.truststore.jks'}",
        f"ssl.truststore.password={PASSWORD}",
        "ssl.client.auth=required",
        "ssl.endpoint.identification.algorithm=",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        *logins,
        *OPEN,
    )
    return f"{wanted['ADVERTISED_HOST']}:{ports['SASL_PLAINTEXT']}"


def kafka_python(suite: Suite) -> int:
    """kafka-python's integration tests; its fixtures start brokers with the scripts of a Kafka."""
    for name in ("kafka-run-class.sh", "kafka-storage.sh", "kafka-topics.sh"):
        suite.program(name, f'exec {sys.executable} {SHIMS / "kafka_root.py"} {name} "$@"')
    where = suite.copied("kafka", "test", "servers", "pyproject.toml")
    environment = {"KAFKA_ROOT": str(suite.root), "KAFKA_VERSION": RELEASE.rpartition(".")[0], "SUITE_MAKE": suite.make}
    return suite.run(where, (suite.python, "-m", "pytest", "test/integration"), **environment)


def kgo(suite: Suite) -> int:
    """The tests of franz-go's package kgo with brokers."""
    cluster = suite.brokers(3)
    command = ("go", "test", "-count=1", "-timeout=30m", "-v", ".")
    return suite.run(suite.source / "pkg" / "kgo", command, KGO_SEEDS=cluster.bootstrap, KGO_TEST_UNSAFE="1")


def sarama(suite: Suite) -> int:
    """Sarama's functional tests; a proxy is before each of five brokers, and the tests stop brokers with Docker."""
    inner, outer = free_ports(SARAMA_BROKERS), free_ports(SARAMA_BROKERS)

    def of_each(broker: int) -> Sequence[str]:
        number = broker - FIRST_BROKER
        internal, local = f"INTERNAL://127.0.0.1:{inner[number]}", "LOCAL://127.0.0.1"
        return (
            f"node.id={number + 1}",
            f"listeners={internal},{local}:{outer[number]}",
            f"advertised.listeners={internal},{local}:{SARAMA_PORT + number}",
            "inter.broker.listener.name=INTERNAL",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,LOCAL:PLAINTEXT",
            f"broker.rack={number + 1}",
        )

    cluster = suite.brokers(
        SARAMA_BROKERS,
        "auto.create.topics.enable=false",
        "default.replication.factor=2",
        "offsets.topic.replication.factor=2",
        "transaction.state.log.replication.factor=2",
        "transaction.state.log.min.isr=1",
        "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector",
        of_each=of_each,
    )

    def handle(asked: Asked) -> Answer:
        match asked.words:
            case ["compose", "stop", name]:
                cluster.stop(int(name.removeprefix("kafka-")) + FIRST_BROKER - 1)
            case ["compose", "start", name]:
                cluster.start(int(name.removeprefix("kafka-")) + FIRST_BROKER - 1)
        return Answer()

    environment = suite.serve(handle)
    environment |= suite.program("docker", f'exec {sys.executable} {SHIMS / "docker.py"} "$@"')
    (port,) = free_ports(1)
    proxies = [
        {
            "name": f"kafka{number + 1}",
            "listen": f"127.0.0.1:{SARAMA_PORT + number}",
            "upstream": f"127.0.0.1:{outer[number]}",
            "enabled": True,
        }
        for number in range(SARAMA_BROKERS)
    ]
    (suite.root / "proxies.json").write_bytes(msgspec.json.encode(proxies))
    subprocess.run(["go", "install", TOXIPROXY], check=True, env=os.environ | {"GOBIN": str(suite.root)})
    proxy = subprocess.Popen(
        [str(suite.root / "server"), "-port", str(port), "-config", str(suite.root / "proxies.json")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    suite.stack.callback(proxy.kill)
    environment |= {"TOXIPROXY_ADDR": f"http://127.0.0.1:{port}", "KAFKA_VERSION": RELEASE}
    command = ("go", "test", "-tags=functional", "-count=1", "-timeout=30m", "-v", ".")
    return suite.run(suite.source, command, **environment)


SUITES: Final[dict[str, Callable[[Suite], int]]] = {
    "aiokafka": aiokafka,
    "confluent": confluent,
    "kafka-python": kafka_python,
    "kgo": kgo,
    "sarama": sarama,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--source", type=Path, required=True, help="a checkout of the project whose suite it is")
    parser.add_argument("--make", choices=(OURS, "kafka"), default=OURS)
    parser.add_argument("--python", default=sys.executable, help="the interpreter for the suite")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the brokers keep files")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:at])
    with tempfile.TemporaryDirectory(prefix="suite-", dir=options.dir) as scratch, ExitStack() as stack:
        suite = Suite(options.make, options.source.resolve(), options.python, Path(scratch), sys.argv[at + 1 :], stack)
        return SUITES[options.suite](suite)


if __name__ == "__main__":
    sys.exit(main())
