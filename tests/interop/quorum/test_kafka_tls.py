"""TLS with Apache Kafka: its controllers and ours in one quorum, its tools and our commands towards either."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from cryptography.x509 import load_pem_x509_certificate

from support.interop.certificates import PASSWORD, Stores, issue, leaf
from support.interop.mixed_quorum import MixedQuorum
from support.interop.our_nodes import kraft, our_controller, our_format, told
from support.interop.real_kafka import (
    CLUSTER_ID,
    CONFIG_TOOL,
    QUORUM_TOOL,
    START_SECONDS,
    STORAGE_TOOL,
    KafkaInstallation,
    Process,
    QuorumLayout,
    eventually,
    free_ports,
    running,
)

pytestmark = pytest.mark.kafka

LEADS = re.compile(r"LeaderId:\s+1\b")
RULES = "RULE:^CN=([a-z0-9]+),.*$/$1/,DEFAULT"


class Secured:
    """The files of a quorum with certificates for its nodes and for its administrator."""

    def __init__(self, root: Path, nodes: Sequence[int], *settings: str, client_auth: str = "required") -> None:
        self.stores = root / "stores"
        self.node = Stores(self.stores, leaf("controller"), "controller")
        self.admin = Stores(self.stores, leaf("admin"), "admin")
        self.layout = QuorumLayout(
            root,
            CLUSTER_ID,
            dict(zip(nodes, free_ports(len(nodes)), strict=True)),
            (
                "listener.security.protocol.map=CONTROLLER:SSL",
                "listener.name.controller.ssl.keystore.type=PKCS12",
                f"listener.name.controller.ssl.keystore.location={self.node.p12}",
                f"listener.name.controller.ssl.keystore.password={PASSWORD}",
                f"listener.name.controller.ssl.key.password={PASSWORD}",
                f"listener.name.controller.ssl.client.auth={client_auth}",
                "ssl.truststore.type=PEM",
                f"ssl.truststore.location={self.node.trust_pem}",
                f"ssl.principal.mapping.rules={RULES}",
                *settings,
            ),
        )

    def config(self, name: str, *lines: str) -> str:
        """A file for `--command-config`."""
        path = self.layout.root / f"{name}.properties"
        trust = ("ssl.truststore.type=PEM", f"ssl.truststore.location={self.node.trust_pem}")
        path.write_text("".join(f"{line}\n" for line in ("security.protocol=SSL", *trust, *lines)))
        return str(path)

    @property
    def as_admin(self) -> str:
        """The file of a client with a certificate."""
        return self.config("admin", "ssl.keystore.type=PEM", f"ssl.keystore.location={self.admin.pem}")


def test_a_broker_of_kafka_registers_with_its_certificate(kafka: KafkaInstallation, tmp_path: Path) -> None:
    secured = Secured(
        tmp_path,
        (1,),
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:controller;User:admin;User:broker101",
    )
    layout, stores = secured.layout, Stores(secured.stores, leaf("broker101"), "broker101")
    our_format(layout)
    properties = tmp_path / "broker101.properties"
    prefix = "listener.name.controller.ssl"
    lines = (
        "process.roles=broker",
        "node.id=101",
        f"log.dirs={tmp_path / 'broker101'}",
        "controller.listener.names=CONTROLLER",
        f"listeners=PLAINTEXT://127.0.0.1:{free_ports(1)[0]}",
        "listener.security.protocol.map=CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
        f"controller.quorum.voters={layout.voters}",
        *(f"{prefix}.{store}store.type=PEM" for store in ("key", "trust")),
        f"{prefix}.keystore.location={stores.pem}",
        f"{prefix}.truststore.location={stores.trust_pem}",
    )
    properties.write_text("".join(f"{line}\n" for line in lines))
    where = ("--bootstrap-controller", layout.bootstrap, "--command-config", secured.as_admin)
    with running(layout, our_controller(layout), name="ours"):
        kafka.tool(STORAGE_TOOL, "format", "-t", layout.cluster_id, "-c", str(properties))
        broker = Process(kafka.command("kafka.Kafka", str(properties), log="info"), tmp_path / "broker101.log")
        try:
            eventually(
                lambda: kraft("topics", "create", "orders", "--partitions", "2", *where).returncode == 0,
                "the broker of Kafka takes partitions",
                START_SECONDS,
            )
            assert " 101 " in told("topics", "describe", "orders", *where)
        finally:
            broker.kill()


def test_kafkas_tool_is_refused_without_the_certificate_that_a_listener_requires(
    kafka: KafkaInstallation, tmp_path: Path
) -> None:
    secured = Secured(tmp_path, (1,))
    our_format(secured.layout)
    where = ("--bootstrap-controller", secured.layout.bootstrap)
    with running(secured.layout, our_controller(secured.layout), name="ours") as nodes:
        tool = (QUORUM_TOOL, *where, "--command-config")
        assert LEADS.search(kafka.tool(*tool, secured.as_admin, "describe", "--status"))
        refused = kafka.run(*tool, secured.config("without-certificate"), "describe", "--status")
        assert refused.returncode == 1
        assert "SslAuthenticationException" in refused.stderr + refused.stdout
        nodes.processes[1].wait_for("the peer sent no certificate, and one is required")


def test_our_command_names_what_a_controller_of_kafka_refuses(kafka: KafkaInstallation, tmp_path: Path) -> None:
    secured = Secured(tmp_path, (1,))
    our_format(secured.layout)
    where = ("--bootstrap-controller", secured.layout.bootstrap, "--timeout", "5")
    commands = MixedQuorum(kafka, secured.layout, {1: "kafka"})
    try:
        commands.start()
        commands.wait_until_listening()
        eventually(
            lambda: bool(LEADS.search(kraft("quorum", "status", *where, "--command-config", secured.as_admin).stdout)),
            "a node of Kafka leads",
        )
        bare = kraft("quorum", "status", *where, "--command-config", secured.config("without-certificate"))
        assert bare.returncode == 1
        # The alert is bad_certificate at JDK 17.0.15, and certificate_required at 17.0.21: a sentence for each.
        assert "this side sent none" in bare.stderr
        plain = kraft("quorum", "status", *where)
        assert "the peer sends TLS on a connection in the clear" in plain.stderr
    finally:
        commands.kill()


def test_kafkas_tool_names_another_store_of_a_running_controller(kafka: KafkaInstallation, tmp_path: Path) -> None:
    secured = Secured(tmp_path, (1,))
    layout, other = secured.layout, Stores(secured.stores, issue("controller", days=200), "other")
    our_format(layout)
    where = ("--bootstrap-controller", layout.bootstrap, "--command-config", secured.as_admin)
    change = ("--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config")
    with running(layout, our_controller(layout), name="ours") as nodes:
        eventually(lambda: kraft("quorum", "status", *where).returncode == 0, "our controller leads")
        assert ends(layout, secured) != ends_of(other)
        key = "listener.name.controller.ssl.keystore.location"
        kafka.tool(CONFIG_TOOL, *where, *change, f"{key}={tmp_path / 'missing.p12'}")
        nodes.processes[1].wait_for(f"stores-kept node=1 why='{key}: cannot read ")
        kafka.tool(CONFIG_TOOL, *where, *change, f"{key}={other.p12}")
        nodes.processes[1].wait_for("stores-replaced node=1")
        assert ends(layout, secured) == ends_of(other)


def ends(layout: QuorumLayout, secured: Secured) -> str:
    """When the certificate of the controller ends, as our command tells."""
    where = ("--bootstrap-controller", layout.bootstrap, "--command-config", secured.as_admin)
    [condition] = json.loads(told("quorum", "status", "--why", "--json", *where))["why"]
    return str(condition["certificate"]["expires"])


def ends_of(stores: Stores) -> str:
    return load_pem_x509_certificate(stores.chain).not_valid_after_utc.isoformat()
