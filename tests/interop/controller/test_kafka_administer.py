"""`kraft topics`, `configs`, `brokers`, `acls`, `reassign`, `elect`, `features` and `users` over a controller of Apache
Kafka and over one of ours: the same commands, the same output to the letter, but for ids and addresses.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from kraft.cli.main import main
from kraft.config.keys import STANDARD_AUTHORIZER
from metadata_log.types import Uuid
from support.differential.controller_sides import CLUSTER_ID
from support.differential.controller_stories import arrives, told
from support.interop.one_controller import side_of
from support.interop.our_nodes import our_controller, our_format
from support.interop.real_kafka import (
    QUIET,
    KafkaInstallation,
    QuorumLayout,
    eventually,
    free_ports,
    kafka_controller,
    running,
)
from support.wire import active_controller, ask
from transport.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

pytestmark = pytest.mark.kafka

BROKERS = (101, 102, 103)
SETTINGS = (
    *QUIET,
    "broker.session.timeout.ms=600000",
    f"authorizer.class.name={STANDARD_AUTHORIZER}",
    "super.users=User:ANONYMOUS",
    # So many records that there is a snapshot, which Kafka's controller sends its readers to.
    "metadata.log.max.record.bytes.between.snapshots=100",
)
ID = re.compile(r"\b(?=[A-Z0-9_-]*[a-z])[A-Za-z0-9_-]{22}\b")

SCRIPT = """
topics list
topics create orders --assignment 101:102,102:103,103:101 --config retention.ms=1000
topics create orders
topics create orders --if-not-exists
topics create bad/name
topics create big --replication-factor 9
topics create tried --partitions 3 --replication-factor 2 --config cleanup.policy=compact --validate-only
topics create wrong --partitions 1 --config nosuch=1
topics grow orders --partitions 4 --assignment 101:103
topics grow orders --partitions 2
topics grow orders --partitions 5 --assignment 101:102:103
topics list
topics list --json
topics describe orders
topics describe orders --json
topics describe --only under-replicated
topics describe --only at-min-isr
configs set topic orders cleanup.policy=compact max.message.bytes=2000000
configs append topic orders cleanup.policy=delete
configs subtract topic orders cleanup.policy=compact
configs delete topic orders max.message.bytes
configs set topic orders nosuch=1
configs set topic nosuch retention.ms=1
configs set topic orders retention.ms=abc
configs set topic orders retention.ms=7 --validate-only
configs set broker default log.retention.ms=1000
configs set broker 101 ssl.keystore.password=secret
configs set group readers consumer.session.timeout.ms=50000
configs set client-metrics slow metrics=org.a interval.ms=1000
configs set quota user=alice,client-id producer_byte_rate=1024
configs set quota user producer_byte_rate=12.5
configs set quota user=alice nosuch=1
configs delete quota user producer_byte_rate
configs describe
configs describe --json
configs describe topic orders --all
configs describe group readers --all
configs describe broker 101 --all
brokers list
brokers list --json
brokers describe 101
brokers describe 9
brokers unregister 9
users set alice --password-file -
users list
users delete bob
users delete alice
acls add --principal User:alice --consumer --topic orders --group g
acls add --principal User:bob --operation read --deny --topic ord --prefixed --host 10.0.0.1
acls add --principal alice --operation read --topic t
acls list
acls list --json
acls list --topic orders --pattern match
acls remove --principal User:alice --dry-run
acls remove --principal User:alice
acls remove --principal User:absent
reassign plan --topic orders --to 101,103
reassign --topic orders --to 101,103
reassign list
reassign list --json
topics describe orders
reassign cancel --topic orders
reassign cancel --all
reassign --topic-partition orders:0 --to 102,101 --wait
reassign --topic-partition orders:0 --to 102,999
elect preferred --all
elect preferred --all --json
elect unclean --topic orders
elect preferred --topic-partition orders:99 --topic-partition orders:0
features upgrade --release-version 4.4
features downgrade --feature metadata.version=4.3-IV0 --dry-run
features downgrade --feature share.version=0
features upgrade --feature share.version=1
features upgrade --feature metadata.version=99
brokers unregister 103
brokers list
topics describe orders
topics delete orders nosuch neither
topics delete nosuch --if-exists
topics list
"""


class Said(NamedTuple):
    """The output of a command, and how it ended."""

    command: str
    code: object
    out: str
    err: str


@pytest.fixture(scope="module")
def both(newer_kafka: KafkaInstallation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, QuorumLayout]]:
    """A controller of each make, with which three brokers have registered that do nothing else."""
    root = tmp_path_factory.mktemp("administer")
    layouts = {}
    for name in ("theirs", "ours"):
        (root / name).mkdir()
        layouts[name] = QuorumLayout(root / name, CLUSTER_ID, {1: free_ports(1)[0]}, SETTINGS)
        our_format(layouts[name], release=newer_kafka.release)
    commands = {"theirs": kafka_controller(newer_kafka, layouts["theirs"]), "ours": our_controller(layouts["ours"])}
    with ExitStack() as stack:
        for name, layout in layouts.items():
            stack.enter_context(running(layout, commands[name], name=name))
        for layout in layouts.values():
            eventually(lambda layout=layout: active_controller(layout.ports[1]) == 1, "it is active")
            for broker in BROKERS:
                told(side_of(layout), arrives(broker))
        yield layouts


def said(
    layout: QuorumLayout, script: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Said]:
    """The output of each command of a script, without what must differ."""
    monkeypatch.setenv("KRAFT_BOOTSTRAP_CONTROLLER", layout.bootstrap)
    for command in script.strip().splitlines():
        monkeypatch.setattr(sys, "stdin", io.StringIO("wonderland\n"))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(command.split())
        out, err = (ID.sub("(id)", text) for text in capsys.readouterr())
        yield Said(command, ended.value.code, out, err)


def test_administration_commands_print_the_same_with_controllers_of_either_make(
    both: dict[str, QuorumLayout], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = list(said(both["theirs"], SCRIPT, capsys, monkeypatch))
    ours = list(said(both["ours"], SCRIPT, capsys, monkeypatch))
    for one, other in zip(theirs, ours, strict=True):
        assert one == other
    assert {one.code for one in theirs} == {0, 1}
    assert not any("Traceback" in one.err or "UNKNOWN_SERVER_ERROR" in one.err for one in theirs)
    assert sum(one.code == 0 for one in theirs) > len(theirs) / 2


def test_a_fetch_from_offset_0_at_kafkas_controller_is_redirected_to_its_snapshot(
    both: dict[str, QuorumLayout],
) -> None:
    """So the images above were read from a snapshot and the log after it."""
    part = FetchPartition(partition=0, current_leader_epoch=1, fetch_offset=0, last_fetched_epoch=0)
    request = FetchRequest(topics=[FetchTopic(topic_id=Uuid.METADATA_TOPIC, partitions=[part])])
    answer = ask(both["theirs"].ports[1], request, 17, FetchResponse)
    assert answer.responses[0].partitions[0].snapshot_id.end_offset > 0
