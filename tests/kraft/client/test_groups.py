"""Members of groups share a topic: our client and our commands on brokers of ours, and the pure parts on their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

from kraft.client import AtTime, Beginning, ClientError, GroupConsumer, GroupProtocol, GroupSettings, open_client
from kraft.client.state.assigning import (
    COOPERATIVE,
    Subscriber,
    assignment_bytes,
    assignment_of,
    range_assignment,
    round_robin_assignment,
    subscriber_of,
    subscription_bytes,
)
from kraft.client.state.grouping import GroupState, positions_of
from kraft.client.state.positions import AtOffset
from metadata_log.types import NEVER_MS
from support.kraft.command_line import run
from support.kraft.data_cluster import DataCluster, data_cluster
from transport.protocol.messages.join_group import JoinGroupResponseMember

RECORDS = 60
QUICK = GroupSettings(session_timeout_ms=6000, heartbeat_interval_ms=300, follows=False)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataCluster]:
    root = tmp_path_factory.mktemp("brokers")
    settings: dict[str, Any] = {
        "offsets_topic_replication_factor": "1",
        "group_initial_rebalance_delay_ms": "0",
        "group_consumer_heartbeat_interval_ms": "100",
        "group_consumer_min_heartbeat_interval_ms": "100",
    }
    with data_cluster(root, **settings) as cluster:
        yield cluster


async def fill(cluster: DataCluster, topic: str, first: int = 0) -> None:
    async with open_client(cluster.endpoints) as client, client.producer(topic) as producer:
        for number in range(first, first + RECORDS):
            await producer.send(b"%d" % number, partition=number % 3)


async def test_a_group_reads_each_record_once_and_goes_on_at_its_offsets(cluster: DataCluster):
    await trio.to_thread.run_sync(partial(cluster.create_topic, "orders", 3, 1))
    await fill(cluster, "orders")
    found: list[bytes | None] = []
    with trio.fail_after(120):
        for first in (RECORDS, 2 * RECORDS):
            async with (
                open_client(cluster.endpoints) as client,
                client.group("orders", "billing", QUICK) as consumer,
            ):
                found += [record.value async for record in consumer]
                assert consumer.assigned == (0, 1, 2)
            assert sorted(int(value or b"") for value in found) == list(range(first))
            await fill(cluster, "orders", first)


async def test_what_is_not_finished_comes_again(cluster: DataCluster):
    await trio.to_thread.run_sync(partial(cluster.create_topic, "again", 1, 1))
    async with open_client(cluster.endpoints) as client, client.producer("again") as producer:
        for number in range(10):
            await producer.send(b"%d" % number)
    with trio.fail_after(120):
        async with open_client(cluster.endpoints) as client:
            async with client.group("again", "g", QUICK) as consumer:
                async for record in consumer:
                    if record.offset == 4:
                        break
            async with client.group("again", "g", QUICK) as consumer:
                assert [record.offset async for record in consumer] == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("protocol", "assignor"),
    [*((one, None) for one in GroupProtocol), (GroupProtocol.CLASSIC, COOPERATIVE)],
    ids=lambda one: getattr(one, "value", one),
)
async def test_two_members_of_one_client_share_a_topic(
    cluster: DataCluster, protocol: GroupProtocol, assignor: str | None
):
    """No request of a member waits behind one of the other, which may wait for the first one."""
    topic = f"shared-{protocol.value}-{assignor}"
    await trio.to_thread.run_sync(partial(cluster.create_topic, topic, 2, 1))
    settings = GroupSettings(protocol=protocol, assignor=assignor, session_timeout_ms=6000, heartbeat_interval_ms=100)
    with trio.fail_after(20):
        async with (
            open_client(cluster.endpoints) as client,
            client.group(topic, topic, settings) as first,
            client.group(topic, topic, settings) as second,
            client.producer(topic) as producer,
            trio.open_nursery() as nursery,
        ):
            found: dict[int, set[int]] = {0: set(), 1: set()}

            async def read(at: int, member: GroupConsumer) -> None:
                async for record in member:
                    found[at].add(record.partition)

            nursery.start_soon(read, 0, first)
            nursery.start_soon(read, 1, second)
            while not (found[0] and found[1] and len(first.assigned or ()) == len(second.assigned or ()) == 1):
                await producer.send(b"", partition=0)
                await (await producer.send(b"", partition=1)).wait()
            nursery.cancel_scope.cancel()


async def test_a_member_goes_where_it_is_told(cluster: DataCluster):
    await trio.to_thread.run_sync(partial(cluster.create_topic, "seek", 2, 1))
    with trio.fail_after(60):
        async with open_client(cluster.endpoints) as client:
            async with client.producer("seek") as producer:
                for number in range(10):
                    await producer.send(b"%d" % number, partition=number % 2, timestamp_ms=1000 + number)
            async with client.group("seek", "seek", QUICK) as member:
                with pytest.raises(ClientError, match="partition seek-0 is not this member's"):
                    member.seek(0, 1)
                first = await read_to_end(member)
                assert first == {0: [0, 1, 2, 3, 4], 1: [0, 1, 2, 3, 4]}
                member.seek(1, 3)
                assert await read_to_end(member) == {1: [3, 4]}
                member.seek(0, 2)
                await member.commit()
                assert await read_to_end(member) == {0: [2, 3, 4]}
                member.rewind()
                assert await read_to_end(member) == {0: [2, 3, 4]}
            since = GroupSettings(reset=AtTime(1006), follows=False)
            async with client.group("seek", "late", since) as member:
                assert await read_to_end(member) == {0: [3, 4], 1: [3, 4]}


async def read_to_end(member: GroupConsumer) -> dict[int, list[int]]:
    """The offsets of what the member reads, by partition."""
    found: dict[int, list[int]] = {}
    async for record in member:
        found.setdefault(record.partition, []).append(record.offset)
    return found


async def test_a_paused_partition_waits_and_the_other_goes_on(cluster: DataCluster):
    await trio.to_thread.run_sync(partial(cluster.create_topic, "paused", 2, 1))
    settings = GroupSettings(session_timeout_ms=6000, heartbeat_interval_ms=100)
    with trio.fail_after(60):
        async with (
            open_client(cluster.endpoints) as client,
            client.producer("paused") as producer,
            client.group("paused", "paused", settings) as member,
        ):
            await producer.send(b"", partition=0)
            assert [one.partition for one in await member.batch()] == [0]
            member.pause([0, 7])
            assert member.paused == {0}
            for _ in range(3):
                await (await producer.send(b"", partition=0)).wait()
                await (await producer.send(b"", partition=1)).wait()
                assert {one.partition for one in await member.batch()} == {1}
            member.resume([0])
            offsets: list[int] = []
            while len(offsets) < 3:
                offsets += [one.offset for one in await member.batch() if one.partition == 0]
            assert offsets == [1, 2, 3]


def test_the_command_consumes_with_a_group_and_shows_it(
    cluster: DataCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    server = f"--bootstrap-server={cluster.bootstrap}"
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\nthree\n")
    assert run(capsys, "produce", "lines", str(lines), server).code == 0
    assert run(capsys, "consume", "lines", server, "--group=g", "--max-messages=2").out == "one\ntwo\n"
    assert run(capsys, "consume", "lines", server, "--group=g").out == "three\n"
    shown = json.loads(run(capsys, "groups", "describe", "g", server, "--json").out)
    [row] = [one for one in shown["groups"][0]["offsets"] if one["topic"] == "lines"]
    assert (row["currentOffset"], row["logEndOffset"], row["lag"]) == (3, 3, 0)
    done = run(capsys, "groups", "reset", "g", "--topic=lines", "--to-offset=1", "--execute", server)
    assert done.out.splitlines()[1].split() == ["lines", "0", "3", "1"]
    assert run(capsys, "consume", "lines", server, "--group=g").out == "two\nthree\n"
    one_of_three = ("--topic=lines:0,7", "--topic=others")
    deleted = run(capsys, "groups", "delete-offsets", "g", *one_of_three, server)
    assert (deleted.code, deleted.out) == (1, "Deleted: lines-0\nNo offset: others\n"), deleted
    assert "lines-7: UNKNOWN_TOPIC_OR_PARTITION" in deleted.err
    assert run(capsys, "groups", "delete", "g", server).out == "Deleted: g\n"
    missing = run(capsys, "groups", "describe", "g", server)
    assert (missing.code, missing.err.splitlines()[0]) == (1, "kraft: error: there is no group g")
    missing = run(capsys, "groups", "reset", "g", "--all-topics", "--to-earliest", server)
    assert (missing.code, missing.out, missing.err.splitlines()[0]) == (1, "", "kraft: error: there is no group g")
    several = run(capsys, "groups", "delete", "g", "h", server)
    assert several.code == 1
    assert [f"group {name}: GROUP_ID_NOT_FOUND" in several.err for name in "gh"] == [True, True]
    refused = run(capsys, "consume", "lines", server, "--group=g", "--from=7")
    assert refused.code == 2
    assert "a group goes on at its offsets" in refused.err
    assert run(capsys, "consume", "lines", server, "--group=").err.startswith("kraft: error: a group has a name")
    assert (
        "the group divides the partitions" in run(capsys, "consume", "lines", server, "--group=g", "--partition=0").err
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("g", "--all-topics"), "give exactly one target"),
        (("g", "--all-topics", "--to-earliest", "--to-latest"), "give exactly one target"),
        (("g", "--to-earliest"), "give either --topic or --all-topics"),
        (("g", "--topic=t", "--all-topics", "--to-earliest"), "give either --topic or --all-topics"),
        (("g", "--topic=t:x", "--to-earliest"), "'t:x' names no partitions"),
        (("g", "--topic=t", "--by-duration=soon"), "'soon' is no duration"),
        (("g", "--topic=t", "--to-datetime=12"), "an offset is no time"),
    ],
)
def test_a_reset_that_says_nothing_clear_is_refused(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
):
    done = run(capsys, "groups", "reset", *words, "--bootstrap-server=127.0.0.1:1")
    assert done.code == 2
    assert told in done.err


def subscribers(*topics: tuple[str, ...]) -> list[Subscriber]:
    return [Subscriber(f"m{at}", None, some) for at, some in enumerate(topics)]


def test_range_gives_the_first_members_one_more_of_each_topic():
    members = subscribers(("a", "b"), ("a",), ("a", "b"))
    assert range_assignment(members, {"a": 7, "b": 3, "c": 9}) == {
        "m0": {"a": [0, 1, 2], "b": [0, 1]},
        "m1": {"a": [3, 4]},
        "m2": {"a": [5, 6], "b": [2]},
    }
    static = [*subscribers(("a",)), Subscriber("z", "i", ("a",))]
    assert range_assignment(static, {"a": 1}) == {"m0": {}, "z": {"a": [0]}}


def test_round_robin_passes_over_who_does_not_want_a_topic():
    members = subscribers(("a", "b"), ("a",))
    assert round_robin_assignment(members, {"a": 3, "b": 2, "c": 1}) == {
        "m0": {"a": [0, 2], "b": [0, 1]},
        "m1": {"a": [1]},
    }


def test_the_bytes_of_the_consumer_protocol():
    member = JoinGroupResponseMember("m", None, subscription_bytes("t"))
    assert subscriber_of(member) == Subscriber("m", None, ("t",))
    assert assignment_of(assignment_bytes({"t": [0, 2]})) == {"t": (0, 2)}
    for damaged in (b"", b"\x00", b"\xff\xff\x00", b"\x00\x01\x00\x00\x00\x09"):
        assert assignment_of(damaged) == {}
        assert subscriber_of(JoinGroupResponseMember("m", None, damaged)).topics == ()


def test_a_partition_goes_on_behind_what_the_user_has_got():
    settings = GroupSettings()
    found = positions_of((0, 1, 2), {0: 5, 1: 5, 2: -1}, {1: 9}, settings)
    assert [found[0].start, found[1].start, found[2].start] == [AtOffset(5), AtOffset(9), Beginning()]


def test_an_assignor_that_there_is_not():
    with pytest.raises(ClientError, match="no assignor sticky"):
        GroupState("t", "g", (("h", 1),), GroupSettings(assignor="sticky"), rng=Random(1))
    GroupState("t", "g", (("h", 1),), GroupSettings(protocol=GroupProtocol.CONSUMER, assignor="own"), rng=Random(1))


def test_a_member_that_waits_for_the_topic_is_not_asked_again_and_again() -> None:
    state = GroupState("t", "g", (("h", 1),), GroupSettings(), rng=Random(1))
    assert len(state.poll(5)) == 1
    assert state.deadline_ms() == NEVER_MS
