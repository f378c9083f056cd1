"""A partition that nobody leads costs a command no time: the others are answered, and it is named."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from kraft.client import open_client
from kraft.client.groups import alter_offsets, list_groups
from kraft.client.questions import Questions
from kraft.testing.kafka import Kafka
from support.kraft.command_line import run
from transport.interface import Endpoint

TIMEOUT = 60
"""Seconds that a question may take: a command that waits for a dead partition takes as long."""
SOON = 20
GROUPS = [f"g{number}" for number in range(12)]
PAST = 3
"""What each group has committed in partitions that are empty."""


class Half(Kafka):
    """Two brokers, of which the second is dead, and with it half of a topic and the coordinators of some groups."""

    dead: list[int]
    dead_parcels: list[int]
    alive_group: str
    dead_group: str


@pytest.fixture(scope="module")
def half() -> Iterator[Half]:
    with Half(brokers=2, controllers=1, settings={"offsets.topic.replication.factor": "1"}) as kafka:
        for topic in ("orders", "parcels"):
            kafka.create_topic(topic, partitions=4, replication_factor=1)
        for number in range(4):
            kafka.produce("parcels", [str(number)], partition=number)

        async def prepare(ask: Questions) -> set[str]:
            view = await ask.cluster()
            for group in GROUPS:
                await alter_offsets(ask, group, {("orders", number): PAST for number in range(4)}, view)
            return {one.group for one in await list_groups(ask)}

        assert questioned(kafka, prepare) == set(GROUPS)
        lost = kafka.broker_ids[1]
        kafka.dead = [number for number in range(4) if kafka.leader("orders", number) == lost]
        kafka.dead_parcels = [number for number in range(4) if kafka.leader("parcels", number) == lost]
        kafka.kill(lost)
        kafka.wait_until(lambda kafka: kafka.is_fenced(lost))
        listed = {one.group for one in questioned(kafka, list_groups)}
        kafka.alive_group, kafka.dead_group = min(listed), min(set(GROUPS) - listed)
        yield kafka


def questioned(kafka: Kafka, work: Any) -> Any:
    async def main() -> Any:
        host, _, port = kafka.bootstrap_servers.partition(",")[0].rpartition(":")
        async with open_client([Endpoint(host, int(port))]) as client:
            return await work(Questions(client, TIMEOUT * 1000))

    return trio.run(main)


def soon(capsys: pytest.CaptureFixture[str], kafka: Kafka, *words: str) -> Any:
    """What a command does, well before its time-out."""
    server = kafka.bootstrap_servers.partition(",")[0]
    began = time.monotonic()
    done = run(capsys, *words, f"--bootstrap-server={server}", f"--timeout={TIMEOUT}")
    assert time.monotonic() - began < SOON
    return done


def test_a_group_is_described_but_for_dead_partitions_and_a_lag_is_what_it_is(
    half: Half, capsys: pytest.CaptureFixture[str]
):
    done = soon(capsys, half, "groups", "describe", half.alive_group, "--json")
    offsets = json.loads(done.out)["groups"][0]["offsets"]
    assert {one["partition"]: (one["logEndOffset"], one["lag"]) for one in offsets} == {
        number: (None, None) if number in half.dead else (0, -PAST) for number in range(4)
    }
    head, _, *rows = soon(capsys, half, "groups", "describe", half.alive_group).out.splitlines()
    assert head.endswith(
        f", lag 0, not known of {len(half.dead)} partitions, {4 - len(half.dead)} offsets past the end of the log"
    )
    assert [row.split()[3:5] for row in rows] == [["-", "-"] if one in half.dead else ["0", "-3"] for one in range(4)]


def test_a_reset_names_the_dead_partition_and_does_the_others(half: Half, capsys: pytest.CaptureFixture[str]):
    words = ("groups", "reset", half.alive_group, "--to-latest")
    refused = soon(capsys, half, *words, "--all-topics")
    assert (refused.code, refused.out) == (1, "")
    assert f"the offsets of the log: orders-{half.dead[0]}: LEADER_NOT_AVAILABLE" in refused.err
    assert "hint: No replica in sync runs" in refused.err
    others = ",".join(str(one) for one in range(4) if one not in half.dead)
    assert soon(capsys, half, *words, f"--topic=orders:{others}").code == 0


@pytest.mark.parametrize("words", [("describe", "GROUP"), ("delete", "GROUP")])
def test_a_group_without_a_coordinator_is_told_at_once(
    half: Half, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
):
    done = soon(capsys, half, "groups", *(half.dead_group if one == "GROUP" else one for one in words))
    assert done.code == 1
    assert f"no broker coordinates group {half.dead_group}: these partitions of __consumer_offsets have no" in done.err


def test_what_live_partitions_have_is_printed_and_the_dead_ones_are_named(
    half: Half, capsys: pytest.CaptureFixture[str]
):
    done = soon(capsys, half, "consume", "parcels")
    assert (done.code, set(done.out.split())) == (1, {str(one) for one in range(4) if one not in half.dead_parcels})
    assert f"no leader for {', '.join(f'parcels-{one}' for one in half.dead_parcels)}: no replica in sync" in done.err


def test_an_internal_topic_that_is_refused_costs_a_command_little(capsys: pytest.CaptureFixture[str]):
    with Kafka(brokers=1, controllers=1, settings={"transaction.state.log.replication.factor": "3"}) as kafka:
        done = soon(capsys, kafka, "transactions", "describe", "payments")
    assert done.code == 1
    assert "no broker coordinates transactional id payments: the brokers do not create __transaction_state" in done.err
    assert "transaction.state.log.replication.factor" in done.err


def test_members_of_groups_say_why_nobody_coordinates_them(capsys: pytest.CaptureFixture[str]):
    with Kafka(brokers=1, controllers=1, settings={"offsets.topic.replication.factor": "3"}) as kafka:
        kafka.create_topic("orders")
        server = f"--bootstrap-server={kafka.bootstrap_servers}"
        done = run(capsys, "consume", "orders", "--group=billing", server, "--timeout=5")
    assert (done.code, done.out) == (1, "")
    assert "group billing: no coordinator answered within 5 s: " in done.err
    assert "offsets.topic.replication.factor" in done.err


def test_the_producers_of_a_dead_partition(half: Half, capsys: pytest.CaptureFixture[str]):
    place = ("--topic=orders", f"--partition={half.dead[0]}")
    done = soon(capsys, half, "transactions", "describe-producers", *place)
    assert (done.code, "LEADER_NOT_AVAILABLE" in done.err) == (1, True)


def test_a_leader_that_hangs_takes_no_time_of_the_others(capsys: pytest.CaptureFixture[str]):
    with Kafka(brokers=2, controllers=1) as kafka:
        kafka.create_topic("orders", partitions=4, replication_factor=1)
        hung = kafka.leader("orders", 0)
        asked = kafka.bootstrap_servers.split(",")[1 - kafka.broker_ids.index(hung)]
        kafka.delay(hung, 600_000)
        words = ("transactions", "find-hanging", "--topic=orders", f"--bootstrap-server={asked}", "--timeout=5")
        done = run(capsys, *words, "--json")
        facts = json.loads(done.out)
        unchecked = [one for one in range(4) if kafka.leader("orders", one) == hung]
        assert (done.code, facts["checked"]) == (1, 4 - len(unchecked))
        assert [one["partition"] for one in facts["unchecked"]] == unchecked
