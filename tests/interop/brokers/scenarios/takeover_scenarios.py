"""C40: a partition of a coordinator moves from one broker to another, in the middle of what it coordinates.

The cluster of both makes has brokers of ours at 101 and 103 and one of Kafka at 102: the partition moves both ways.
"""

from __future__ import annotations

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from consumer_group_scenarios import two_members
from consumer_member import converge, epochs
from support.interop.our_nodes import told
from support.interop.real_kafka import DUMP_TOOL, eventually
from support.scenarios.coordinator_client import (
    GROUP,
    PARTITIONS,
    TOPIC_OF,
    TRANSACTION,
    Member,
    commit,
    committed,
    coordinated,
    coordinator_of,
    fresh,
    internal,
    partition_of,
    settle,
    stable_group,
    wait_for_offset,
    wait_for_rebalance,
)
from support.scenarios.reassignment_scenarios import elect, reassign
from support.scenarios.scenario_cluster import SECONDS, Cluster
from transactions_by_hand import TV1, TV2, Producer, wait_until_stable
from transactions_by_hand import committed as committed_values
from transport.protocol.errors import Error
from transport.protocol.messages.join_group import JoinGroupResponse

WAYS: Final = ((101, 102), (102, 101))
DECODER: Final = {GROUP: "--offsets-decoder", TRANSACTION: "--transaction-log-decoder"}
STATUS: Final = re.compile(r'"transactionStatus":"(\w+)"')
"""How the tool of Kafka 4.4.0 shows the status of a transaction; that of 4.3.1, and ours, show the number."""
STATUSES: Final = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
UNSTABLE: Final = (-1, Error.UNSTABLE_OFFSET_COMMIT)


def lead(cluster: Cluster, key: str, broker: int, kind: int = GROUP) -> None:
    """Let a broker coordinate a group or a transactional id: as the preferred leader of the partition it is elected."""
    coordinator_of(cluster, key, kind)
    topic, number = internal(cluster, kind), partition_of(key)
    others = tuple(one for one in topic.replicas if one != broker)
    reassign(cluster, topic, (broker, *others), number)
    eventually(
        lambda: set(cluster.partition(topic, number).isr) == set(topic.replicas), f"{topic.name} is in sync", SECONDS
    )
    elect(cluster, topic, number=number)
    eventually(lambda: coordinator_of(cluster, key, kind) == broker, f"{broker} coordinates {key}", SECONDS)


@coordinated("C40")
def a_coordinator_moves_in_the_middle_of_a_rebalance(cluster: Cluster) -> None:
    topic = cluster.create("c40")
    for former, later in WAYS:
        group = fresh("g")
        lead(cluster, group, former)
        first, second = stable_group(cluster, group=group, members=2)
        assert first.commit(topic, 5) == Error.NONE
        third = Member(cluster, group)
        third.id = third.join_once().member_id
        with ThreadPoolExecutor(2) as pool:
            held = pool.submit(cluster.ask, former, third.joining(), 9, JoinGroupResponse)
            wait_for_rebalance(first)
            rejoined = pool.submit(cluster.ask, former, first.joining(), 9, JoinGroupResponse)
            lead(cluster, group, later)
            assert [one.result().error_code for one in (held, rejoined)] == [Error.NOT_COORDINATOR] * 2
        # The new coordinator knows what was written: the last generation, and nothing of the one that was to come.
        assert [one.heartbeat() for one in (first, second)] == [Error.NONE, Error.NONE]
        assert third.join_once().error_code == Error.UNKNOWN_MEMBER_ID
        third.id = ""
        generation = first.generation
        settle([first, second, third], third)
        assert first.generation == generation + 1
        assert committed(cluster, group, topic, stable=True) == (5, Error.NONE)
        lead(cluster, group, former)
        assert [one.heartbeat() for one in (first, second, third)] == [Error.NONE] * 3
        assert third.commit(topic, 6) == Error.NONE


@coordinated("C40")
def a_coordinator_moves_while_a_member_gives_up_partitions(cluster: Cluster) -> None:
    topic = cluster.create_wide("c40", 4)
    for former, later in WAYS:
        group = fresh("g")
        lead(cluster, group, former)
        first, second = two_members(cluster, topic, 4, group=group)
        everything = first.held
        assert (first.beat().error_code, len(first.held)) == (Error.NONE, 2)
        kept = first.held
        lead(cluster, group, later)
        answer = first.beat(held=everything)
        assert (answer.error_code, answer.member_epoch) == (Error.NONE, 2), Error.of(answer.error_code)
        first.held = kept
        assert (second.beat().error_code, second.held) == (Error.NONE, frozenset())
        converge([first, second], everything)
        lead(cluster, group, former)
        assert (first.held, first.epoch, second.epoch) == (kept, 3, 3)
        converge([first, second], everything)
        assert epochs(cluster, group) == ("Stable", 3, 3)


@coordinated("C40")
def coordinators_move_in_the_middle_of_a_transaction(cluster: Cluster) -> None:
    for former, later in WAYS:
        for version in (TV1, TV2):
            topic = cluster.create("c40")
            group, name = fresh("g"), fresh("t")
            lead(cluster, group, former)
            lead(cluster, name, former, TRANSACTION)
            producer = Producer(cluster, name, version)
            producer.send(topic, b"before")
            producer.commit_offset(group, topic, 5)
            lead(cluster, name, later, TRANSACTION)
            assert committed(cluster, group, topic, stable=True) == UNSTABLE
            producer.send(topic, b"between")
            lead(cluster, group, later)
            assert committed(cluster, group, topic, stable=True) == UNSTABLE
            producer.end(commits=True)
            wait_until_stable(cluster, topic, 3)
            wait_for_offset(cluster, group, topic, 5)
            # And back, in the middle of one that is aborted then.
            producer.send(topic, b"dropped")
            producer.commit_offset(group, topic, 9)
            lead(cluster, group, former)
            lead(cluster, name, former, TRANSACTION)
            producer.end(commits=False)
            wait_until_stable(cluster, topic, 5)
            wait_for_offset(cluster, group, topic, 5)
            assert committed_values(cluster, topic) == [b"before", b"between"]


def dumps(cluster: Cluster, kind: int, broker: int, numbers: range = range(PARTITIONS)) -> tuple[str, str]:
    """The output of Kafka's dump tool and of ours for all partitions of a kind at a replica."""
    assert cluster.kafka is not None
    directories = [cluster.directory(broker, internal(cluster, kind), number) for number in numbers]
    with TemporaryDirectory() as place:
        copies = [Path(shutil.copytree(one, Path(place) / one.name)) for one in directories]
        files = [str(file) for one in copies for file in sorted(one.glob("*.log"))]
        theirs = cluster.kafka.run(DUMP_TOOL, DECODER[kind], "--files", ",".join(files))
        assert (theirs.returncode, theirs.stderr) == (0, "")
        return STATUS.sub(_numbered, theirs.stdout), told("dump", "--records", *files)


def _numbered(status: re.Match[str]) -> str:
    return f'"transactionStatus":{STATUSES.index(status[1])}'


@coordinated("C40")
def what_each_make_has_written_is_read_by_the_other(cluster: Cluster) -> None:
    topic = cluster.create_wide("c40", 4)
    for name in (fresh("k"), fresh("k")):
        for broker in (101, 102, 103):
            group = f"{name}-{broker}"
            next_group = f"{group}-next"
            for one in (group, next_group):
                lead(cluster, one, broker)
            [member] = stable_group(cluster, group=group)
            assert member.commit(topic, 5) == Error.NONE
            assert commit(cluster, f"{group}-simple", topic, 3, 4, retention_ms=60_000_000) == Error.NONE
            first, second = two_members(cluster, topic, 4, group=next_group)
            converge([first, second], first.held)
            everything = first.held | second.held
            assert second.leave().error_code == Error.NONE
            converge([first], everything)
            # Whoever stays would be removed while the logs are read.
            assert first.leave().error_code == member.leave().error_code == Error.NONE
            for version in (TV1, TV2):
                producer = Producer(cluster, f"{group}-{version}", version)
                lead(cluster, producer.name, broker, TRANSACTION)
                for commits in (True, False):
                    producer.send(topic, b"v")
                    producer.commit_offset(f"{group}-simple", topic, 7)
                    producer.end(commits=commits)
    for kind in TOPIC_OF:
        stored = [
            each
            for number in range(PARTITIONS)
            for each in cluster.wait_for_equal_logs(internal(cluster, kind), number=number)
        ]
        for broker in cluster.makes:
            theirs, ours = dumps(cluster, kind, broker)
            assert ours == theirs
            # Members that other scenarios have left are still removed meanwhile.
            assert theirs.count("| offset: ") >= sum(one.record_count for one in stored)
