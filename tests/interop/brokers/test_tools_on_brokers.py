"""Kafka's command line tools do their work on brokers with our controllers, and print what they print with Kafka's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kraft.config.keys import STANDARD_AUTHORIZER
from support.interop.broker_cluster import CONSOLE_CONSUMER, TOPIC_TOOL, BrokerCluster, broker_cluster
from support.interop.kafka_tools import KafkaTools
from support.interop.mixed_quorum import Make
from support.interop.real_kafka import CLUSTER_TOOL, CONFIG_TOOL, QUORUM_TOOL, KafkaInstallation, eventually

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
SETTINGS = (
    f"authorizer.class.name={STANDARD_AUTHORIZER}",
    "super.users=User:ANONYMOUS",
    "delegation.token.secret.key=of-this-test",
)
ACLS = "org.apache.kafka.tools.AclCommand"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
ASSIGNMENT = "101:102:103,102:103:101,103:101:102"
MOVED = {0: [102, 103], 1: [103, 101], 2: [101, 102]}
LINES = "".join(f"line {number}\n" for number in range(100))
DRAWN = re.compile(
    r"TopicId: \S+|\b\d{5}\b(?=[ /,;)])|127\.0\.0\.1:\d+|\b\d{10,}\b|LeaderEpoch:\s+\d+|[\w-]{22}(?![\w-])"
    r"|Epoch: \d+|\(id: \d+|Local controller \d|adminclient-\d+"
)
"""Ids, ports, times, epochs, and how many clients there were before: what may differ between any two clusters."""
VOTERS = ("AddRaftVoter", "RemoveRaftVoter")
"""Static voters are not changed, so these are not offered here, while Kafka offers them and refuses."""
MOVING = re.compile(r"(?m)(LeaderId|CurrentObservers|LeaderEpoch|HighWatermark|MaxFollower\w+):.*")
"""What the status of a quorum says of this moment, or in any order."""
Printed = dict[str, str]
MAKES: tuple[Make, ...] = ("kafka", "ours")


class Tools:
    """The tools at work on one cluster; what each step has printed is kept under its name."""

    def __init__(self, cluster: BrokerCluster, kafka: KafkaTools) -> None:
        self.cluster = cluster
        self._kafka = kafka
        self.printed: Printed = {}

    def run(self, step: str, tool: str, *args: str, stdin: str = "", server: str | None = None) -> str:
        """Run a tool; the exit code is part of what is kept."""
        where = self.cluster.server if server is None else server
        done = self._kafka.run(tool, *(one for one in (where,) if one), *args, stdin=stdin)
        said = "\n".join(line for line in done.stderr.splitlines() if not line.startswith(("\tat ", "Caused by")))
        self.printed[step] = f"{DRAWN.sub('…', done.stdout)}\n{DRAWN.sub('…', said)}\nexit code {done.returncode}"
        return done.stdout


def topics(tools: Tools) -> None:
    tools.run("create", TOPIC_TOOL, "--create", "--topic=orders", f"--replica-assignment={ASSIGNMENT}")
    tools.run("create again", TOPIC_TOOL, "--create", "--topic=orders", "--partitions=1", "--replication-factor=1")
    tools.run("create too wide", TOPIC_TOOL, "--create", "--topic=wide", "--partitions=1", "--replication-factor=4")
    tools.run("create wrong", TOPIC_TOOL, "--create", "--topic=wrong", "--config=min.insync.replicas=x")
    tools.run("shrink", TOPIC_TOOL, "--alter", "--topic=orders", "--partitions=2")
    tools.run("describe", TOPIC_TOOL, "--describe", "--topic=orders")
    tools.run("spare", TOPIC_TOOL, "--create", "--topic=spare", "--partitions=1", "--replication-factor=3")
    tools.run("grow", TOPIC_TOOL, "--alter", "--topic=spare", "--partitions=3")
    tools.run("list", TOPIC_TOOL, "--list")
    tools.run("delete", TOPIC_TOOL, "--delete", "--topic=spare")
    tools.run("delete again", TOPIC_TOOL, "--delete", "--topic=spare")


def configs(tools: Tools) -> None:
    of_topic = ("--entity-type=topics", "--entity-name=orders")
    tools.run("set", CONFIG_TOOL, "--alter", *of_topic, "--add-config=retention.ms=1234,min.insync.replicas=2")
    tools.run("set wrong", CONFIG_TOOL, "--alter", *of_topic, "--add-config=retention.ms=soon")
    tools.run("set unknown", CONFIG_TOOL, "--alter", *of_topic, "--add-config=retention.days=1")
    tools.run("unset", CONFIG_TOOL, "--alter", *of_topic, "--delete-config=retention.ms")
    tools.run("shown", CONFIG_TOOL, "--describe", *of_topic)
    one_broker = ("--entity-type=brokers", "--entity-name=101")
    tools.run("broker", CONFIG_TOOL, "--alter", *one_broker, "--add-config=log.cleaner.threads=2")
    all_brokers = ("--entity-type=brokers", "--entity-default")
    tools.run("all brokers", CONFIG_TOOL, "--alter", *all_brokers, "--add-config=message.max.bytes=2000000")
    tools.run("broker shown", CONFIG_TOOL, "--describe", *one_broker)
    client = ("--entity-type=clients", "--entity-name=c")
    tools.run("quota", CONFIG_TOOL, "--alter", *client, "--add-config=request_percentage=50")
    tools.run("quota shown", CONFIG_TOOL, "--describe", *client)


def messages(tools: Tools) -> None:
    tools.run("console producer", CONSOLE_PRODUCER, "--topic=orders", "--command-property=acks=all", stdin=LINES)
    read = tools.run(
        "console consumer",
        CONSOLE_CONSUMER,
        *("--topic=orders", "--from-beginning", "--group=readers", "--max-messages=100", "--timeout-ms=60000"),
    )
    tools.printed["console consumer"] = "\n".join(sorted(read.splitlines()))
    bootstrap = f"bootstrap.servers={tools.cluster.bootstrap}"
    flags = ("--topic=orders", "--num-records=5000", "--record-size=1000", "--throughput=-1", "--command-property")
    last = tools.run("performance", PERFORMANCE, *flags, bootstrap, "acks=all", server="").splitlines()[-1]
    tools.printed["performance"] = last.split(",")[0]
    transactional = ("--transactional-id=in-turn", "--transaction-duration-ms=100")
    last = tools.run("in transactions", PERFORMANCE, *flags, bootstrap, *transactional, server="").splitlines()[-1]
    tools.printed["in transactions"] = last.split(",")[0]
    # The producer's answer comes with PrepareCommit; the coordinator completes the transaction after the markers.
    completed = "CompleteCommit"
    eventually(lambda: completed in tools.run("transactions", TRANSACTIONS, "list"), "the transaction is completed")
    tools.printed["transactions"] = str(tools.printed["transactions"].split()[:4])
    described = tools.run("transaction", TRANSACTIONS, "describe", "--transactional-id=in-turn")
    tools.printed["transaction"] = str(described.split()[:9])
    assert completed in described
    tools.run("no hanging", TRANSACTIONS, "find-hanging", "--topic=orders")


def partitions(tools: Tools) -> None:
    cluster, root = tools.cluster, tools.cluster.layout.root
    tools.run("no election needed", ELECTION, "--election-type=preferred", "--topic=orders", "--partition=0")
    plan = root / "plan.json"
    moves = [{"topic": "orders", "partition": number, "replicas": replicas} for number, replicas in MOVED.items()]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    file = f"--reassignment-json-file={plan}"
    tools.run("execute", REASSIGN, file, "--execute", "--throttle=50000000")
    eventually(
        lambda: [one.replicas for one in cluster.image().topics["orders"].partitions] == [*map(tuple, MOVED.values())],
        "the partitions are moved",
    )
    tools.run("verify", REASSIGN, file, "--verify")
    tools.run("nothing moves", REASSIGN, "--list")
    tools.run("nothing to cancel", REASSIGN, file, "--cancel")
    tools.run("throttles are gone", CONFIG_TOOL, "--describe", "--entity-type=topics", "--entity-name=orders")
    tools.run("elect all", ELECTION, "--election-type=preferred", "--all-topic-partitions")
    tools.printed.pop("elect all")
    first = [replicas[0] for replicas in MOVED.values()]
    eventually(lambda: [one.leader for one in cluster.image().topics["orders"].partitions] == first, "elected")
    tools.run("described", TOPIC_TOOL, "--describe", "--topic=orders")
    tools.run("unclean", ELECTION, "--election-type=unclean", "--topic=orders", "--partition=1")
    tools.run("log dirs", LOG_DIRS, "--describe", "--broker-list=101", "--topic-list=orders")
    tools.printed["log dirs"] = tools.printed["log dirs"].partition("{")[0].replace(str(root), "")


def security(tools: Tools) -> None:
    granted = ("--allow-principal=User:alice", "--consumer", "--topic=orders", "--group=readers")
    tools.run("grant", ACLS, "--add", *granted)
    # The rules of a resource are a HashSet there, of enums with a hash of their JVM; the first rule has no indent.
    tools.printed["grant"] = "\n".join(sorted(line.strip() for line in tools.printed["grant"].splitlines()))
    eventually(lambda: len(tools.cluster.image().acls.by_id) == 3, "the rules are written")
    tools.run("revoke", ACLS, "--remove", "--force", "--topic=orders")
    tools.run("no tokens here", TOKENS, "--create", "--max-life-time-period=-1", f"--command-config={empty(tools)}")


def empty(tools: Tools) -> Path:
    """A file of client properties that sets nothing."""
    file = tools.cluster.layout.root / "client.properties"
    file.write_text("")
    return file


def cluster_and_quorum(tools: Tools) -> None:
    for step, arguments in (
        ("features", ("describe",)),
        ("downgrade", ("downgrade", "--feature=share.version=0")),
        ("upgrade", ("upgrade", "--feature=share.version=1")),
        ("unsafe", ("downgrade", "--metadata=4.2-IV1")),
        ("too high", ("upgrade", "--feature=kraft.version=9")),
        ("dry run", ("downgrade", "--feature=group.version=0", "--dry-run")),
    ):
        tools.run(step, FEATURES, *arguments)
        tools.printed[step] = re.sub(r"Epoch: \d+", "Epoch: …", tools.printed[step])
    for step, arguments in (
        ("cluster id", ("cluster-id",)),
        ("endpoints", ("list-endpoints",)),
        ("unregister an unknown broker", ("unregister", "--id=999")),
    ):
        tools.run(step, CLUSTER_TOOL, arguments[0], tools.cluster.server, *arguments[1:], server="")
    tools.run("api versions", API_VERSIONS)
    apis = sorted(line for line in tools.printed["api versions"].splitlines() if not line.strip().startswith(VOTERS))
    tools.printed["api versions"] = "\n".join(apis)
    status = tools.run("quorum", QUORUM_TOOL, "describe", "--status")
    tools.printed["quorum"] = MOVING.sub(r"\1", tools.printed["quorum"])
    assert re.search(rf"LeaderId: +{tools.cluster.leader()}$", status, re.MULTILINE)
    replication = tools.run("replication", QUORUM_TOOL, "describe", "--replication")
    lines = [line.replace("Leader", "Follower").split() for line in replication.splitlines() if line]
    tools.printed["replication"] = str(sorted((line[0], line[-1]) for line in lines))


STORY = (topics, configs, messages, partitions, security, cluster_and_quorum)


@pytest.fixture(scope="module")
def by_make(kafka: KafkaInstallation, tmp_path_factory: pytest.TempPathFactory) -> dict[Make, Printed]:
    """The output of the tools, step by step, with controllers of either make, one cluster after the other."""
    found: dict[Make, Printed] = {}
    for make in MAKES:
        root = tmp_path_factory.mktemp(make)
        with broker_cluster(kafka, root, make, SETTINGS) as cluster, KafkaTools(kafka) as processes:
            tools = Tools(cluster, processes)
            for chapter in STORY:
                chapter(tools)
            found[make] = {step: text.replace(str(cluster.layout.root), "") for step, text in tools.printed.items()}
    return found


def test_kafkas_tools_print_the_same_with_controllers_of_either_make(by_make: dict[Make, Printed]) -> None:
    """Whatever a tool says and its exit code are the same, but for ids, ports, times and epochs."""
    ours, kafkas = by_make["ours"], by_make["kafka"]
    assert ours.keys() == kafkas.keys()
    different = {step: (ours[step], kafkas[step]) for step in kafkas if ours[step] != kafkas[step]}
    assert not different, "\n".join(
        f"== {step}\nours:\n{one}\nKafka's:\n{other}" for step, (one, other) in different.items()
    )
