"""Kafka's own tools administer a quorum of ours through a broker of Kafka's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kraft.config.keys import STANDARD_AUTHORIZER
from metadata_log import replay
from metadata_log.image import MetadataImage
from support.interop.our_nodes import our_controller, our_format, told
from support.interop.real_kafka import CONFIG_TOOL, KafkaInstallation, Process, free_ports, layout_in, running

pytestmark = pytest.mark.kafka
BROKER = 101
ACLS = "org.apache.kafka.tools.AclCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
SECURITY = (
    f"authorizer.class.name={STANDARD_AUTHORIZER}",
    "super.users=User:ANONYMOUS",
    "delegation.token.secret.key=of-this-test",
)


def test_acls_users_quotas_and_features(kafka: KafkaInstallation, tmp_path: Path) -> None:
    """The changes that the tools ask for are in our log, and the tools show what the broker has read there."""
    layout = layout_in(tmp_path, SECURITY)
    our_format(layout)
    port = free_ports(1)[0]
    properties = tmp_path / "broker.properties"
    lines = (
        "process.roles=broker",
        f"node.id={BROKER}",
        f"log.dirs={tmp_path / 'broker'}",
        "controller.listener.names=CONTROLLER",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        f"listeners=PLAINTEXT://127.0.0.1:{port}",
        f"controller.quorum.voters={layout.voters}",
        *SECURITY,
    )
    properties.write_text("".join(f"{line}\n" for line in lines))
    told("format", "-c", str(properties), "--cluster-id", layout.cluster_id)

    def image() -> MetadataImage:
        return replay(str(layout.partition(1)))

    with running(layout, our_controller(layout), name="ours") as nodes:
        broker = Process(kafka.command("kafka.Kafka", str(properties), log="info"), tmp_path / "broker.log")
        try:
            broker.wait_for("Transition from STARTING to STARTED")
            server = f"--bootstrap-server=127.0.0.1:{port}"

            kafka.tool(ACLS, server, "--add", "--allow-principal=User:alice", "--consumer", "--topic=t", "--group=g")
            granted = {(acl.resource_name, acl.operation) for acl in image().acls.by_id.values()}
            assert granted == {("t", 3), ("t", 8), ("g", 3)}
            listed = kafka.tool(ACLS, server, "--list", "--topic=t")
            assert "principal=User:alice, host=*, operation=READ, permissionType=ALLOW" in listed
            kafka.tool(ACLS, server, "--remove", "--force", "--topic=t")
            assert [acl.resource_name for acl in image().acls.by_id.values()] == ["g"]

            alice = ("--entity-type=users", "--entity-name=alice")
            for setting in ("SCRAM-SHA-256=[iterations=8192,password=wonderland]", "producer_byte_rate=1024"):
                kafka.tool(CONFIG_TOOL, server, "--alter", *alice, f"--add-config={setting}")
            assert image().scram.by_user["alice"][1].iterations == 8192
            assert dict(image().quotas.by_entity[(("user", "alice"),)]) == {"producer_byte_rate": 1024.0}
            described = kafka.tool(CONFIG_TOOL, server, "--describe", *alice)
            assert "producer_byte_rate=1024.0" in described
            assert "SCRAM-SHA-256=iterations=8192" in described
            for setting in ("SCRAM-SHA-256", "producer_byte_rate"):
                kafka.tool(CONFIG_TOOL, server, "--alter", *alice, f"--delete-config={setting}")
            assert not image().scram.by_user
            assert not image().quotas.by_entity

            kafka.tool(FEATURES, server, "downgrade", "--feature=share.version=0")
            assert image().features.level("share.version") == 0
            refused = kafka.run(FEATURES, server, "downgrade", "--metadata=4.2-IV1")
            assert refused.returncode == 1
            assert "might delete metadata information" in refused.stdout + refused.stderr
            kafka.tool(FEATURES, server, "upgrade", "--feature=share.version=1")
            shown = kafka.tool(FEATURES, server, "describe")
            assert re.search(r"share.version\s.*FinalizedVersionLevel: 1", shown)

            one = ("--entity-type=brokers", "--entity-name=1", "--all")
            own = kafka.tool(CONFIG_TOOL, f"--bootstrap-controller={layout.bootstrap}", "--describe", *one)
            assert re.search(r"node.id=1 sensitive=false synonyms=\{STATIC_BROKER_CONFIG:node.id=1\}", own)
            assert "delegation.token.secret.key=null sensitive=true" in own
        finally:
            broker.kill()
        printed = "".join(process.text for process in nodes.processes.values())
    assert "wonderland" not in printed
    assert "of-this-test" not in printed
