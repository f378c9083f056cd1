"""The commands of administration on a node of ours over TCP, with brokers that have registered and do nothing else.

What Apache Kafka's controller says to the same commands is compared in
`tests/interop/controller/test_kafka_administer.py`.
"""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from kraft.admin import open_admin
from kraft.cli.cluster.administration import parse_bootstrap
from kraft.cli.main import main
from kraft.config.keys import STANDARD_AUTHORIZER
from metadata_log.serde import Message
from support.differential.controller_sides import Side
from support.differential.controller_stories import arrives, told
from support.kraft.command_line import CLUSTER_ID, Done, run, write_config
from support.loopback import free_ports
from transport.protocol import messages

BROKERS = (101, 102, 103)
SETTINGS = {
    "controller.quorum.election.timeout.ms": "100",
    "broker.session.timeout.ms": "600000",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
}
PATIENCE_SECONDS = 60


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a controller of ours listens that three brokers have registered with."""
    port = free_ports(1)[0]
    config = write_config(tmp_path_factory.mktemp("administration"), port=port, **SETTINGS)
    with pytest.raises(SystemExit):
        main(["format", "-c", str(config), "-t", CLUSTER_ID, "--release-version", "4.3"])
    command = [sys.executable, "-m", "kraft", "serve", "-c", str(config), "--until-stdin-closes"]
    address = f"127.0.0.1:{port}"
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as node:
        try:
            side = Side(lambda request, version: trio.run(_answer, address, request))
            for broker in BROKERS:
                told(side, arrives(broker, cluster_id=CLUSTER_ID))
            yield address
        finally:
            node.kill()


async def _answer(address: str, request: Message) -> Message:
    """The answer of the node, once it leads."""
    answer: type[Message] = getattr(messages, type(request).__name__.replace("Request", "Response"))
    async with open_admin(parse_bootstrap(address), timeout_ms=PATIENCE_SECONDS * 1000) as admin:
        await admin.describe_quorum()
        found = await admin.ask(parse_bootstrap(address)[0], request, answer)
    assert isinstance(found, answer), found
    return found


class Asked:
    """Runs commands against one address."""

    def __init__(self, capsys: pytest.CaptureFixture[str], address: str) -> None:
        self.address = address
        self._capsys = capsys

    def __call__(self, *words: str) -> Done:
        return run(self._capsys, *words, "--bootstrap-controller", self.address)

    def lines(self, *words: str) -> list[str]:
        """The output lines of a command that succeeds."""
        done = self(*words)
        assert (done.code, done.err) == (0, ""), done
        return done.out.splitlines()

    def json(self, *words: str) -> Any:
        """The same as data."""
        return json.loads("\n".join(self.lines(*words, "--json")))

    def refused(self, *words: str) -> str:
        """The error text of a command that fails."""
        done = self(*words)
        assert done.code == 1, done
        return done.err


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], address: str) -> Asked:
    return Asked(capsys, address)


def test_topics(ask: Asked) -> None:
    assert ask.lines("topics", "list") == ["No topic."]
    assert "no topic matches orders*" in ask.refused("topics", "list", "orders*")
    made = ask.json("topics", "create", "orders", "--assignment", "101:102,102:103", "--config", "retention.ms=1000")
    assert (made["partitions"], made["replicationFactor"], made["configs"]) == (2, 2, {"retention.ms": "1000"})
    assert ask.lines("topics", "create", "orders", "--if-not-exists") == ["orders is there already"]
    assert ask.refused("topics", "create", "orders").splitlines() == [
        "kraft: error: orders: TOPIC_ALREADY_EXISTS: Topic 'orders' already exists.",
        "hint: See `kraft topics describe`.",
    ]
    assert ask.lines("topics", "create", "no", "--partitions", "3", "--replication-factor", "1", "--validate-only") == [
        "would create no: 3 partitions, replication factor 1"
    ]
    assert ask.lines("topics", "grow", "orders", "--partitions", "3", "--assignment", "103:101") == [
        "grew orders to 3 partitions"
    ]
    assert "not be an increase" in ask.refused("topics", "grow", "orders", "--partitions", "2")
    assert ask.lines("topics", "list", "orders*") == [
        "TOPIC   PARTITIONS  REPLICAS  UNAVAILABLE  UNDER-REPLICATED",
        "orders  3           2         0            0",
    ]
    assert ask.lines("topics", "describe", "orders") == [
        f"orders: 3 partitions, replication factor 2, id {made['topicId']}, retention.ms=1000",
        "PARTITION  LEADER  REPLICAS  ISR",
        "0          101     101,102   101,102",
        "1          102     102,103   102,103",
        "2          103     103,101   103,101",
    ]
    for words in (
        ("topics", "describe", "ordrs"),
        ("topics", "list", "Ordes*"),
        ("topics", "delete", "ordrs"),
        ("topics", "grow", "ordrs", "--partitions", "9"),
        ("configs", "describe", "topic", "ordrs"),
        ("configs", "set", "topic", "ordrs", "retention.ms=1"),
        ("elect", "preferred", "--topic", "ordrs"),
        ("reassign", "plan", "--topic", "ordrs", "--to", "101"),
        ("reassign", "start", "--topic-partition", "ordrs:0", "--to", "101"),
        ("reassign", "cancel", "--topic", "ordrs"),
    ):
        assert "hint: Did you mean orders?" in ask.refused(*words), words
    for words in (
        ("brokers", "describe", "110"),
        ("configs", "describe", "broker", "110"),
        ("reassign", "plan", "--topic", "orders", "--to", "101,110"),
    ):
        assert "hint: The brokers are 101, 102, 103." in ask.refused(*words), words
    assert "there is no partition orders-7" in ask.refused("reassign", "--topic-partition", "orders:7", "--to", "101")
    assert ask.lines("configs", "describe", "broker", "101") == ["Nothing is set."]
    assert "there is no subscription nosuch" in ask.refused("configs", "describe", "client-metrics", "nosuch")
    assert ask.lines("topics", "describe", "orders", "--only", "under-min-isr") == ["No partition is under min isr."]
    ask.lines("configs", "set", "topic", "orders", "min.insync.replicas=2")
    at = ask.json("topics", "describe", "--only", "at-min-isr")["topics"]
    assert [(topic["name"], len(topic["partitions"])) for topic in at] == [("orders", 3)]
    done = ask("topics", "delete", "orders", "nosuch", "neither")
    assert (done.code, done.out) == (1, "deleted orders\n")
    assert [line.split(":")[2].strip() for line in done.err.splitlines()[:2]] == ["neither", "nosuch"]
    assert ask.lines("topics", "delete", "nosuch", "--if-exists") == ["there is no topic nosuch"]
    assert "there is no topic orders" in ask.refused("topics", "describe", "orders")


def test_configs_and_quotas(ask: Asked) -> None:
    ask.lines("topics", "create", "set", "--assignment", "101")
    topic = ("topic", "set")
    assert ask.lines("configs", "set", *topic, "cleanup.policy=compact", "retention.ms=5") == [
        "set cleanup.policy=compact (topic set)",
        "set retention.ms=5 (topic set)",
    ]
    ask.lines("configs", "append", *topic, "cleanup.policy=delete")
    assert ask.lines("configs", "describe", *topic) == [
        "KIND   NAME  KEY             VALUE           SOURCE",
        "topic  set   cleanup.policy  compact,delete  DYNAMIC_TOPIC_CONFIG",
        "topic  set   retention.ms    5               DYNAMIC_TOPIC_CONFIG",
    ]
    ask.lines("configs", "subtract", *topic, "cleanup.policy=compact")
    ask.lines("configs", "delete", *topic, "retention.ms")
    everything = {each["key"]: each for each in ask.json("configs", "describe", *topic, "--all")["configs"]}
    assert everything["cleanup.policy"]["value"] == "delete"
    assert everything["retention.ms"] == {
        "kind": "topic",
        "name": "set",
        "key": "retention.ms",
        "value": "604800000",
        "source": "DEFAULT_CONFIG",
    }
    assert "INVALID_CONFIG: Unknown topic config name: nosuch" in ask.refused("configs", "set", *topic, "nosuch=1")
    assert "there is no topic nosuch" in ask.refused("configs", "describe", "topic", "nosuch")
    ask.lines("configs", "set", "group", "readers", "consumer.session.timeout.ms=50000")
    assert ask.lines("configs", "set", "broker", "101", "ssl.keystore.password=hunter2") == [
        "set ssl.keystore.password=(redacted) (broker 101)"
    ]
    everywhere = ask("configs", "describe").out
    assert "(redacted)" in everywhere
    assert "hunter2" not in everywhere + ask("configs", "describe", "--json").out
    assert "ask the broker itself" in ask.refused("configs", "describe", "--all", "broker", "101")
    own = {each["key"]: each["value"] for each in ask.json("configs", "describe", "--all", "broker", "1")["configs"]}
    assert own["node.id"] == "1"

    ask.lines("configs", "set", "quota", "client-id,user=alice", "producer_byte_rate=1024")
    assert ask.lines("configs", "describe", "quota") == [
        "KIND   NAME                  KEY                 VALUE  SOURCE",
        "quota  user=alice,client-id  producer_byte_rate  1024   QUOTA",
    ]
    ask.lines("configs", "delete", "quota", "user=alice,client-id", "producer_byte_rate")
    assert ask.lines("configs", "describe", "quota", "user=alice,client-id") == ["Nothing is set."]
    ask.lines("topics", "delete", "set")


def test_brokers(ask: Asked) -> None:
    listed = ask.lines("brokers", "list")
    assert listed[0].split() == ["ID", "STATE", "RACK", "DIRECTORIES", "CORDONED", "REPLICAS", "LEADS", "ENDPOINTS"]
    assert listed[1].split() == ["101", "active", "rack-1", "1", "0", "0", "0", "PLAINTEXT://127.0.0.1:9101"]
    found = ask.json("brokers", "describe", "102")
    assert (found["state"], found["rack"], found["features"]["metadata.version"]) == ("active", "rack-0", [7, 33])
    assert "broker 9 is not registered" in ask.refused("brokers", "describe", "9")
    refused = ask.refused("brokers", "unregister", "9")
    assert "BROKER_ID_NOT_REGISTERED" in refused
    assert refused.splitlines()[-1] == "hint: The brokers are 101, 102, 103."


def test_acls(ask: Asked) -> None:
    assert ask.lines("acls", "list") == ["No rule."]
    assert ask.lines("acls", "add", "--principal", "User:a", "--consumer", "--topic", "t", "--group", "g")[0] == (
        "added 3 rules"
    )
    ask.lines("acls", "add", "--principal", "User:b", "--deny", "--operation", "write", "--topic", "t", "--prefixed")
    assert ask.lines("acls", "list", "--topic", "table", "--pattern", "match") == [
        "PERMISSION  PRINCIPAL  HOST  OPERATION  RESOURCE  NAME  PATTERN",
        "DENY        User:b     *     WRITE      TOPIC     t     PREFIXED",
    ]
    mine = ("--principal", "User:a")
    assert ask.lines("acls", "remove", *mine, "--type", "topic", "--dry-run")[0] == "would remove 2 rules"
    assert ask.lines("acls", "remove", *mine, "--type", "topic")[0] == "removed 2 rules"
    assert [each["resourceType"] for each in ask.json("acls", "list", *mine)["acls"]] == ["GROUP"]
    assert ask.lines("acls", "remove", "--all")[0] == "removed 2 rules"
    assert ask.lines("acls", "remove", *mine) == ["removed 0 rules"]
    assert "INVALID_REQUEST" in ask.refused("acls", "add", "--principal", "a", "--operation", "read", "--topic", "t")


def test_reassignments_and_elections(ask: Asked, tmp_path: Path) -> None:
    ask.lines("topics", "create", "moving", "--assignment", "101:102,102:101")
    done = ask("reassign", "plan", "--topic", "moving", "--to", "102,103")
    assert done.err == "2 partitions would change, 2 replicas would be copied\n"
    plan, before = tmp_path / "plan.json", tmp_path / "before.json"
    plan.write_text(done.out)
    assert ask.lines("reassign", str(plan), "--save-before", str(before)) == [
        "moving-0: 101,102 → 102,103",
        "moving-1: 102,101 → 103,102",
    ]
    assert ask.lines("reassign", "list") == [
        "TOPIC   PARTITION  REPLICAS     ADDING  REMOVING",
        "moving  0          102,103,101  103     101",
        "moving  1          103,102,101  103     101",
    ]
    assert ask.lines("reassign", "cancel", "--topic", "moving") == ["moving-0: cancelled", "moving-1: cancelled"]
    refused = ask.refused("elect", "preferred", "--topic-partition", "moving:7")
    assert refused.splitlines()[-1] == "hint: moving has partitions 0 to 1."
    assert ask.refused("reassign", "cancel", str(plan)).splitlines() == [
        "kraft: error: moving-0: NO_REASSIGNMENT_IN_PROGRESS: No reassignment in progress.",
        "kraft: error: moving-1: NO_REASSIGNMENT_IN_PROGRESS: No reassignment in progress.",
        "hint: See `kraft reassign list`.",
    ]
    assert ask.lines("reassign", str(before), "--wait")[-1] == "complete: 2 partitions"
    to = ("--to", "102,101")
    assert ask.lines("reassign", "--topic-partition", "moving:0", *to, "--wait") == [
        "moving-0: 101,102 → 102,101",
        "complete: 1 partition",
    ]
    assert ask.lines("elect", "preferred", "--all") == ["moving-0: elected a leader"]
    assert ask.lines("elect", "preferred", "--topic", "moving") == ["2 partitions needed no election"]
    done = ask("elect", "unclean", "--topic-partition", "moving:7", "--topic-partition", "moving:0")
    assert (done.code, done.out) == (1, "1 partition needed no election\n")
    assert "moving-7: UNKNOWN_TOPIC_OR_PARTITION" in done.err
    assert "no such broker is registered" in ask.refused("reassign", "--topic-partition", "moving:0", "--to", "102,9")
    assert "there is no partition moving-9" in ask.refused("reassign", "--topic-partition", "moving:9", *to)
    ask.lines("topics", "delete", "moving")


def test_throttles_of_moves(ask: Asked) -> None:
    ask.lines("topics", "create", "heavy", "--assignment", "101:102,102:101")
    move = ("reassign", "--topic-partition", "heavy:1", "--to", "101,103", "--throttle", "5000")
    assert ask.lines(*move)[-1].startswith("throttled to 5000 bytes/s; `kraft reassign unthrottle` ends that")

    def settings(kind: str, name: str) -> dict[str, str | None]:
        found = ask.json("configs", "describe", kind, name)["configs"]
        return {one["key"]: one["value"] for one in found if "throttled" in one["key"]}

    lists = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
    # A controller, as Kafka's, hides the values of what it does not know the type of.
    rates = dict.fromkeys(("leader.replication.throttled.rate", "follower.replication.throttled.rate"))
    assert settings("topic", "heavy") == dict(zip(lists, ("1:102,1:101", "1:103"), strict=True))
    assert [settings("broker", each) for each in ("101", "102", "103")] == [rates] * 3
    ask.lines("reassign", "cancel", "--all")
    assert ask.json("reassign", "unthrottle") == {"freed": ["topic heavy", "broker 101", "broker 102", "broker 103"]}
    assert ask.lines("reassign", "unthrottle") == ["Nothing is throttled."]
    assert settings("topic", "heavy") == {}
    back = ("reassign", "--topic-partition", "heavy:1", "--to", "101,102", "--throttle", "5000", "--wait")
    assert ask.lines(*back)[-1] == "no longer throttled: topic heavy, broker 101, broker 102"
    ask.lines("topics", "delete", "heavy")


def test_an_interrupted_wait_reports_what_goes_on(ask: Asked) -> None:
    ask.lines("topics", "create", "slow", "--assignment", "101")
    command = [sys.executable, "-m", "kraft", "reassign", "--topic-partition", "slow:0", "--to", "102", "--wait"]
    where = ("--bootstrap-controller", ask.address)
    with subprocess.Popen([*command, *where], stderr=subprocess.PIPE, text=True) as waiting:
        while ask.json("reassign", "list")["reassignments"] == []:
            assert waiting.poll() is None
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate(timeout=PATIENCE_SECONDS)
    assert waiting.returncode == 130, said
    assert "The reassignments in progress continue" in said
    assert ask.lines("reassign", "cancel", "--all") == ["slow-0: cancelled"]
    ask.lines("topics", "delete", "slow")


def test_features(ask: Asked) -> None:
    described = {line.split()[0]: line.split()[1:] for line in ask.lines("features", "describe")[1:]}
    assert described["metadata.version"] == ["4.3-IV0", "3.3-IV3", "4.4-IV2"]
    assert ask.lines("features", "downgrade", "--feature", "share.version=0", "--dry-run") == [
        "would set share.version to 0"
    ]
    assert ask.lines("features", "downgrade", "--feature", "share.version=0") == ["set share.version to 0"]
    assert ask.lines("features", "upgrade", "--release-version", "4.3")[0] == "set metadata.version to 4.3-IV0"
    found = ask.json("features", "describe")["features"]
    assert {"name": "share.version", "finalized": 1, "supported": {"min": 0, "max": 2}} in found
    refused = ask.refused("features", "downgrade", "--feature", "metadata.version=4.2-IV0")
    assert "might delete metadata information" in refused


def test_users(ask: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("wonderland\n"))
    assert ask.lines("users", "set", "alice", "--password-file", "-") == ["alice can log in with SCRAM-SHA-256"]
    assert ask.lines("users", "list") == ["USER   MECHANISM      ITERATIONS", "alice  SCRAM-SHA-256  4096"]
    assert ask.refused("users", "delete", "alise").splitlines()[-1] == "hint: Did you mean alice?"
    ask.lines("users", "delete", "alice")
    assert "RESOURCE_NOT_FOUND" in ask.refused("users", "delete", "alice")


def test_a_file_of_another_kind_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    for content, complaint in (
        ("{}", "no file of kafka-reassign-partitions"),
        ('{"partitions": []}', "names no partition"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/a"]}]}', "log directory"),
        ('{"partitions": [%s, %s]}' % (('{"topic": "t", "partition": 0, "replicas": [1]}',) * 2), "named twice"),
    ):
        file.write_text(content)
        done = run(capsys, "reassign", "cancel", str(file), "--bootstrap-controller", "127.0.0.1:9")
        assert done.code == 2
        assert complaint in done.err


def test_an_unreachable_cluster_is_one_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    done = run(capsys, "topics", "list", "--bootstrap-controller", address, "--timeout", "0.2")
    assert (done.code, done.out) == (1, "")
    assert f"{address}: Connection refused" in done.err
