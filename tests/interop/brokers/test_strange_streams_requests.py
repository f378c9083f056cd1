"""Requests of streams groups with wrong fields, versions and rights have the answers of a broker of Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraft.config.keys import STANDARD_AUTHORIZER
from one_node import one_node
from streams_requests import HIDDEN, TOPICS, steps, told
from support.interop.our_nodes import told as commanded
from support.interop.real_kafka import KafkaInstallation

pytestmark = pytest.mark.kafka

SETTINGS = (
    f"authorizer.class.name={STANDARD_AUTHORIZER}",
    "allow.everyone.if.no.acl.found=true",
    *(f"group.streams.{name}=0" for name in ("initial.rebalance.delay.ms", "assignment.interval.ms")),
)
LEAST = 90
"""How many requests there are at least."""


def answers(kafka: KafkaInstallation, root: Path, make: str) -> dict[str, Any]:
    with one_node(kafka, root, make, *SETTINGS) as (controller, port):
        broker = ("--bootstrap-server", f"127.0.0.1:{port}")
        for topic, count in TOPICS.items():
            commanded("topics", "create", topic, "--partitions", str(count), *broker)
        rule = ("--principal", "User:ANONYMOUS", "--operation", "all", "--deny")
        for kind in ("--group", "--topic"):
            commanded("acls", "add", *rule, kind, HIDDEN, "--bootstrap-controller", f"127.0.0.1:{controller}")
        return told(port)


def test_wrong_requests_have_the_answers_of_kafka(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    theirs, ours = (answers(newer_kafka, tmp_path / make, make) for make in ("kafka", "ours"))
    assert len(steps()) >= LEAST
    differing = {name: (ours[name], theirs[name]) for name in theirs if ours[name] != theirs[name]}
    for name, pair in differing.items():
        print(f"{name}\n  ours   {pair[0]}\n  theirs {pair[1]}")
    assert not differing
