"""Clients log in at Kafka's brokers; what they may do, brokers and our controllers decide by the same rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kraft.config.keys import STANDARD_AUTHORIZER
from metadata_log import replay
from metadata_log.image import MetadataImage
from support.interop.our_nodes import our_controller, our_format, told
from support.interop.real_kafka import (
    CONFIG_TOOL,
    QUORUM_TOOL,
    KafkaInstallation,
    Process,
    QuorumLayout,
    eventually,
    free_ports,
    layout_in,
    running,
)

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
ACLS = "org.apache.kafka.tools.AclCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
RULES = (f"authorizer.class.name={STANDARD_AUTHORIZER}", "super.users=User:ANONYMOUS;User:admin")
PLAIN_USERS = ("admin", "alice", "mallory")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
CLIENT_MODULES = {"PLAIN": PLAIN, "SCRAM-SHA-256": SCRAM}
CONFIG_OPTIONS = {PRODUCER: "--producer.config", CONSUMER: "--consumer.config"}
TOPIC = "--topic=orders"


class Cluster:
    """Three controllers of ours and a broker of Kafka's, at which clients log in."""

    def __init__(self, kafka: KafkaInstallation, layout: QuorumLayout) -> None:
        self.kafka = kafka
        self.layout = layout
        self.inside, self.outside = free_ports(2)
        self.server = f"--bootstrap-server=127.0.0.1:{self.outside}"

    def broker(self) -> Process:
        """Format and start the broker. Other brokers would come by a listener without login, as controllers do."""
        users = " ".join(f'user_{name}="{name}-secret"' for name in PLAIN_USERS)
        lines = (
            "process.roles=broker",
            "node.id=101",
            f"log.dirs={self.layout.root / 'broker'}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
            f"listeners=INSIDE://127.0.0.1:{self.inside},OUTSIDE://127.0.0.1:{self.outside}",
            "inter.broker.listener.name=INSIDE",
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
            f"listener.name.outside.plain.sasl.jaas.config={PLAIN} required {users};",
            f"listener.name.outside.scram-sha-256.sasl.jaas.config={SCRAM} required;",
            "offsets.topic.num.partitions=1",
            "offsets.topic.replication.factor=1",
            "group.initial.rebalance.delay.ms=0",
            f"controller.quorum.voters={self.layout.voters}",
            *RULES,
        )
        properties = self._file("broker.properties", lines)
        told("format", "-c", str(properties), "--cluster-id", self.layout.cluster_id)
        return Process(self.kafka.command("kafka.Kafka", str(properties), log="info"), self.layout.root / "broker.log")

    def _file(self, name: str, lines: tuple[str, ...]) -> Path:
        path = self.layout.root / name
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    def run(self, user: str, tool: str, *args: str, stdin: str | None = None) -> tuple[int, str]:
        """Run a tool of Kafka's as a user; its exit code, and what it prints."""
        mechanism = "PLAIN" if user in PLAIN_USERS else "SCRAM-SHA-256"
        login = f'{CLIENT_MODULES[mechanism]} required username="{user}" password="{user}-secret";'
        config = self._file(
            f"{user}.properties",
            ("security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={mechanism}", f"sasl.jaas.config={login}"),
        )
        option = CONFIG_OPTIONS.get(tool, "--command-config")
        done = self.kafka.run(tool, self.server, option, str(config), *args, stdin=stdin)
        return done.returncode, done.stdout + done.stderr

    def works(self, user: str, tool: str, *args: str, stdin: str | None = None) -> str:
        """The tool's output for a user that may do this."""
        code, printed = self.run(user, tool, *args, stdin=stdin)
        assert code == 0, printed
        assert "not authorized" not in printed.lower(), printed
        return printed

    def refused(self, user: str, tool: str, *args: str, stdin: str | None = None) -> str:
        """The tool's output for a denied user; the console's producer and consumer end with 0 all the same."""
        return self.run(user, tool, *args, stdin=stdin)[1]

    def image(self) -> MetadataImage:
        """The image in the log of one controller."""
        return replay(str(self.layout.partition(1)))


@contextmanager
def cluster_in(kafka: KafkaInstallation, root: Path) -> Iterator[Cluster]:
    """The cluster while the block lasts."""
    layout = layout_in(root, RULES)
    our_format(layout)
    cluster = Cluster(kafka, layout)
    with running(layout, our_controller(layout), name="ours") as nodes:
        broker = cluster.broker()
        try:
            broker.wait_for("Transition from STARTING to STARTED")
            yield cluster
            printed = "".join(node.text for node in nodes.processes.values())
            assert "denied node=" in printed
            assert "principal='User:mallory' host=127.0.0.1 operation=ALTER resource='CLUSTER:kafka-cluster'" in printed
        finally:
            broker.kill()


def test_allowed_principals_work_and_others_get_kafkas_error(kafka: KafkaInstallation, tmp_path: Path) -> None:
    with cluster_in(kafka, tmp_path) as cluster:
        works, refused = cluster.works, cluster.refused
        create = ("--create", TOPIC, "--partitions=1", "--replication-factor=1")

        # What the broker leaves to the controller: topics, rules, configurations, the quorum.
        said = refused("alice", TOPICS, *create)
        assert "Error while executing topic command : Authorization failed." in said
        assert "TopicAuthorizationException" in said
        granted = ("--add", "--allow-principal=User:alice", "--producer", "--consumer", TOPIC, "--group=g")
        assert "ClusterAuthorizationException" in refused("alice", ACLS, *granted)
        assert not cluster.image().acls.by_id
        works("admin", ACLS, *granted)
        reads = ("--allow-principal=User:carol", "--operation=Read")
        works("admin", ACLS, "--add", *reads, TOPIC)
        works("admin", ACLS, "--add", *reads, "--group=c-", "--resource-pattern-type=prefixed")
        works("alice", TOPICS, *create)
        assert "orders" in cluster.image().topics
        assert "does not exist" in refused("mallory", TOPICS, "--alter", TOPIC, "--partitions=3")
        retention = ("--alter", TOPIC, "--add-config=retention.ms=5000")
        assert "TopicAuthorizationException" in refused("alice", CONFIG_TOOL, *retention)
        assert not cluster.image().configs.by_resource.get((2, "orders"))
        assert "ClusterAuthorizationException" in refused("mallory", QUORUM_TOOL, "describe", "--status")
        assert "LeaderId:" in works("admin", QUORUM_TOOL, "describe", "--status")

        # What the broker decides by the rules it has read in our log.
        made = "one\ntwo\nthree\n"
        works("alice", PRODUCER, TOPIC, stdin=made)
        read = ("--from-beginning", "--max-messages=3", "--timeout-ms=30000", TOPIC)
        assert made in works("alice", CONSUMER, *read, "--group=g")
        no_topic = "Not authorized to access topics: [orders]"
        assert no_topic in refused("mallory", PRODUCER, TOPIC, stdin=made)
        assert no_topic in refused("mallory", CONSUMER, *read, "--group=g")

        # Another login, with its secret in our log.
        secret = ("--entity-type=users", "--entity-name=carol", "--add-config=SCRAM-SHA-256=[password=carol-secret]")
        assert "ClusterAuthorizationException" in refused("mallory", CONFIG_TOOL, "--alter", *secret)
        works("admin", CONFIG_TOOL, "--alter", *secret)
        eventually(lambda: "carol" in cluster.image().scram.by_user, "carol can log in")
        assert made in works("carol", CONSUMER, *read, "--group=c-1")
        no_group = "Not authorized to access group: g"
        assert no_group in refused("carol", CONSUMER, *read, "--group=g")
        works("admin", ACLS, "--remove", "--force", *reads, TOPIC)
        assert no_topic in refused("carol", CONSUMER, *read, "--group=c-2")
