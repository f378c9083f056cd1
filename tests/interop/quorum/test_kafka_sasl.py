"""Logins with Apache Kafka: its tools at our controllers, our commands at its controllers, and both in one quorum."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.interop.certificates import Stores, leaf
from support.interop.mixed_quorum import MixedQuorum
from support.interop.our_nodes import kraft, our_controller, our_format, told
from support.interop.real_kafka import (
    CLUSTER_ID,
    CONFIG_TOOL,
    QUORUM_TOOL,
    KafkaInstallation,
    QuorumLayout,
    eventually,
    free_ports,
    running,
)

pytestmark = pytest.mark.kafka

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
AUTHORIZED = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:node;User:alice",
)
ALICE = ("--add-scram", "SCRAM-SHA-256=[name=alice,password=a-secret]")


def secured(root: Path, nodes: Sequence[int], *settings: str) -> QuorumLayout:
    """Controllers that log in at each other by PLAIN, and where clients may also do so by SCRAM."""
    prefix = "listener.name.controller"
    users = 'username="node" password="n-secret" user_node="n-secret" user_alice="a-secret"'
    return QuorumLayout(
        root,
        CLUSTER_ID,
        dict(zip(nodes, free_ports(len(nodes)), strict=True)),
        (
            "listener.security.protocol.map=CONTROLLER:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "sasl.mechanism.controller.protocol=PLAIN",
            f"{prefix}.plain.sasl.jaas.config={PLAIN} required {users};",
            f"{prefix}.scram-sha-256.sasl.jaas.config={SCRAM} required;",
            f"{prefix}.scram-sha-512.sasl.jaas.config={SCRAM} required;",
            *settings,
        ),
    )


def config(layout: QuorumLayout, mechanism: str = "PLAIN", user: str = "alice", password: str = "a-secret") -> str:
    """A file for `--command-config`."""
    path = layout.root / f"{mechanism}-{user}-{password}.properties"
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} required username="{user}" password="{password}";\n'
    )
    return str(path)


def leads(shown: str) -> bool:
    """Whether the status of a quorum names node 1 as its leader."""
    return re.search(r"^LeaderId: +1$", shown, re.MULTILINE) is not None


def test_kafkas_tools_log_in_at_our_controller_and_are_refused_with_a_wrong_password(
    kafka: KafkaInstallation, tmp_path: Path
) -> None:
    layout = secured(tmp_path, (1,), *AUTHORIZED)
    told("format", "-c", str(layout.properties(1)), "--cluster-id", CLUSTER_ID, *ALICE)
    with running(layout, our_controller(layout), name="ours") as nodes:
        tool = (QUORUM_TOOL, "--bootstrap-controller", layout.bootstrap, "--command-config")
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            shown = kafka.tool(*tool, config(layout, mechanism), "describe", "--status")
            assert leads(shown), mechanism
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            refused = kafka.run(*tool, config(layout, mechanism, password="wrong"), "describe", "--status")
            assert refused.returncode == 1
            assert "SaslAuthenticationException" in refused.stderr + refused.stdout
        unknown = kafka.run(*tool, config(layout, "SCRAM-SHA-512"), "describe", "--status")
        assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in unknown.stderr + unknown.stdout
        # Lines of one kind are written once a second, so only the first refusal certainly has a line of its own.
        nodes.processes[1].wait_for("the login by PLAIN failed: wrong user name or password")
        assert "a-secret" not in nodes.processes[1].text


def test_our_commands_log_in_at_a_controller_of_kafka(kafka: KafkaInstallation, tmp_path: Path) -> None:
    layout = secured(tmp_path, (1,), *AUTHORIZED)
    told("format", "-c", str(layout.properties(1)), "--cluster-id", CLUSTER_ID, *ALICE)
    nodes = MixedQuorum(kafka, layout, {1: "kafka"})
    where = ("quorum", "status", "--bootstrap-controller", layout.bootstrap, "--timeout", "5", "--command-config")
    try:
        nodes.start()
        nodes.wait_until_listening()
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            eventually(
                lambda mechanism=mechanism: leads(kraft(*where, config(layout, mechanism)).stdout),
                f"our command logs in by {mechanism}",
            )
        refused = kraft(*where, config(layout, password="wrong"))
        assert refused.returncode == 1
        assert "Authentication failed: Invalid username or password" in refused.stderr
        assert "wrong" not in refused.stderr.replace("PLAIN-alice-wrong", "")
    finally:
        nodes.kill()


def test_a_login_within_tls_has_the_principal_of_the_login(kafka: KafkaInstallation, tmp_path: Path) -> None:
    stores = Stores(tmp_path / "stores", leaf("controller"), "controller")
    trust = ("ssl.truststore.type=PEM", f"ssl.truststore.location={stores.trust_pem}")
    key = ("ssl.keystore.type=PEM", f"ssl.keystore.location={stores.pem}")
    layout = secured(tmp_path, (1,), *AUTHORIZED, "listener.security.protocol.map=CONTROLLER:SASL_SSL", *trust, *key)
    told("format", "-c", str(layout.properties(1)), "--cluster-id", CLUSTER_ID, *ALICE)
    with running(layout, our_controller(layout), name="ours"):
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            file = Path(config(layout, mechanism))
            file.write_text(file.read_text().replace("SASL_PLAINTEXT", "SASL_SSL") + "\n".join((*trust, "")))
            where = ("--bootstrap-controller", layout.bootstrap, "--command-config", str(file))
            assert leads(kafka.tool(QUORUM_TOOL, *where, "describe", "--status")), mechanism
            assert leads(told("quorum", "status", *where)), mechanism


def test_both_makes_form_a_quorum_that_logs_in_by_plain(kafka: KafkaInstallation, tmp_path: Path) -> None:
    layout = secured(tmp_path, (1, 2, 3), *AUTHORIZED, "connections.max.reauth.ms=4000")
    our_format(layout)
    nodes = MixedQuorum(kafka, layout, {1: "ours", 2: "ours", 3: "kafka"})
    where, file = ("--bootstrap-controller", layout.bootstrap), config(layout)
    try:
        nodes.start()
        nodes.wait_until_listening()
        eventually(
            lambda: kraft("quorum", "status", *where, "--command-config", file).returncode == 0,
            "our command sees the quorum",
        )
        for turn in range(3):
            change = ("--alter", "--entity-type", "brokers", "--entity-default", "--add-config")
            kafka.tool(CONFIG_TOOL, *where, "--command-config", file, *change, f"message.max.bytes={1024 + turn}")
            status = told("quorum", "status", *where, "--command-config", file)
            leader = int(status.split("LeaderId:")[1].split()[0])
            nodes.end(leader, "stop")
            nodes.start(leader)
            nodes.wait_until_listening()
        assert "LeaderId" in kafka.tool(QUORUM_TOOL, *where, "--command-config", file, "describe", "--status")
        nodes.check_that_all_live()
    finally:
        nodes.kill()
