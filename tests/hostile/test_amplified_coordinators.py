"""Small on the wire, large inside, at the coordinators of groups and transactions that are there.

Each API is asked by the shapes of `amplified` in each situation of `coordinated`. Instructions are counted as in
`test_amplified_requests.py`. That leaves out what a function in C does inside one of them, as to copy a growing tuple,
so that the largest requests which a listener takes are also measured, by the time of the processor: the work of one
turn is much less than the limit, or much more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from random import Random, SystemRandom
from typing import Final

import pytest

from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups import classic
from kraft.coordinators.groups.classic import GroupTimer
from kraft.coordinators.groups.offsets import Commit, Committer, commit
from kraft.coordinators.groups.shard import GroupShard
from kraft.coordinators.runtime import budget
from kraft.coordinators.runtime.shard import Context, CoordinatorResult
from kraft.coordinators.transactions import admin_handler, coordinator, operations
from kraft.coordinators.transactions.shard import Timeout
from kraft.limits import COORDINATOR_UNITS_PER_TURN, TURN_MS
from metadata_log.types import Uuid
from support.broker.operations import Doing
from support.hostile.amplified import Amplified
from support.hostile.coordinated import (
    APIS,
    MEMBER,
    ORDERS,
    SITUATIONS,
    Coordinator,
    Turn,
    attacks,
    cpu_ms,
    decoded,
    situated,
)
from support.hostile.instructions import SECONDS_PER_INSTRUCTION
from support.work_counted import instructions_run
from transport.protocol.apis import Api, ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from transport.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from transport.protocol.messages.describe_transactions import DescribeTransactionsRequest
from transport.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from transport.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from transport.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

PER_REQUEST: Final = 20_000
PER_BYTE: Final = 60
DEARER: Final = {
    ApiKey.FIND_COORDINATOR: 300,  # The right to each group, and its partition by a hash of its name.
    ApiKey.WRITE_TXN_MARKERS: 720,  # An append to a log for each four bytes.
    ApiKey.DELETE_GROUPS: 150,
    ApiKey.DESCRIBE_GROUPS: 100,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 120,
    ApiKey.DESCRIBE_TRANSACTIONS: 100,
}
"""What an element of these APIs may cost, by its bytes: 1.3 times the highest figure (`bench/margins.py`)."""
TURN: Final = int(TURN_MS / 1000 / SECONDS_PER_INSTRUCTION)
SLICE_BYTES: Final = 3_000
LARGEST_BYTES: Final = 1_000_000
"""No list of small elements that a listener takes is larger: it counts values."""
TRIES: Final = 3
"""How often a turn is measured that is too long: others use the processor's caches."""
OWNED: Final = 29_500
CROWD: Final = 900
MARKERS: Final = 1500
PER_TURN_OF_STEPS: Final = 700_000
"""The most instructions of twenty steps that append eight markers each."""


def check(
    apis: Iterable[Api], situation: str, size: int, judge: Callable[[Amplified, str], list[str]], seed: int
) -> None:
    """Ask APIs everything in a situation."""
    seed = int(os.environ.get("ATTACK_SEED", seed))
    print(f"ATTACK_SEED={seed}")
    rng = Random(seed)
    found = [one for api in apis for attack in attacks(api, situation, size, rng) for one in judge(attack, situation)]
    assert found == [], "\n".join(found)


def turns_of(one: Amplified, situation: str) -> tuple[Coordinator, Iterator[Turn]]:
    """The turns of a request at a broker of its own."""
    made = decoded(one)
    assert made is not None, one.shape
    broker, _ = situated(situation)
    return broker, broker.turns(*made)


def offences(one: Amplified, situation: str) -> list[str]:
    """The counted instructions of a request that are beyond its budget."""
    _, turns = turns_of(one, situation)
    work = [instructions_run(turn) for turn in turns]
    allowed = one.allowed(PER_REQUEST, DEARER.get(one.key, PER_BYTE))
    where = f"{situation}: {one.shape}, {len(one.frame)} bytes"
    found = [f"{where}: {sum(work):,} instructions, allowed {allowed:,}"] if sum(work) > allowed else []
    if max(work) > TURN:
        found.append(f"{where}: a turn of {max(work):,} instructions, allowed {TURN:,}")
    return found


def offences_in_time(one: Amplified, situation: str) -> list[str]:
    """The longest turn of a request, if it is too long each time."""
    longest = 0.0
    for _ in range(TRIES):
        _, turns = turns_of(one, situation)
        longest = max(map(cpu_ms, turns))
        if longest <= TURN_MS:
            return []
    return [f"{situation}: {one.shape}, {len(one.frame)} bytes: a turn of {longest:.0f} ms, allowed {TURN_MS}"]


def shortest_of(turns: Callable[[], Iterator[Turn]]) -> float:
    """The longest of some turns, each time they are made; the least of these."""
    return min(max(map(cpu_ms, turns())) for _ in range(TRIES))


@pytest.mark.parametrize("situation", SITUATIONS)
def test_no_request_costs_more_than_its_bytes_allow(situation: str) -> None:
    check(APIS, situation, SLICE_BYTES, offences, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_no_turn_of_the_largest_requests_is_long(api: Api, situation: str) -> None:
    check([api], situation, LARGEST_BYTES, offences_in_time, SystemRandom().getrandbits(32))


def test_a_member_may_say_of_one_topic_very_often_what_it_has() -> None:
    """A growing tuple was copied for each time: 8 seconds."""
    broker, known = situated("consumer")
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id=known["group_id"],
        member_id=MEMBER,
        member_epoch=known["member_epoch"],
        rebalance_timeout_ms=-1,
        topic_partitions=[
            ConsumerGroupHeartbeatRequestTopicPartitions(Uuid(b"\1" * 16), [number]) for number in range(OWNED)
        ],
    )
    assert shortest_of(lambda: broker.turns(heartbeat, 1)) <= TURN_MS
    assert {one.error_code for one in broker.answers.values()} == {0}


def test_very_many_members_leave_a_consumer_group_in_several_turns() -> None:
    broker = Coordinator()
    names = [f"m{number}" for number in range(CROWD)]
    for name in names:
        joins = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=name,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=["orders"],
            topic_partitions=[],
        )
        assert broker.ask(joins).error_code == 0
    leaves = LeaveGroupRequest(group_id="g", members=[MemberIdentity(one) for one in names])
    work = [instructions_run(turn) for turn in broker.turns(leaves, 5)]
    (answer,) = broker.answers.values()
    assert [(one.member_id, one.error_code) for one in answer.members] == [(one, 0) for one in names]
    assert answer.error_code == 0
    assert max(work) <= TURN // 2


def test_very_many_markers_are_answered_in_steps() -> None:
    """The answer to 20,000 markers was made in one turn of 218 ms."""
    broker = Coordinator()
    topics = [WritableTxnMarkerTopic("orders", [0])]
    markers = [WritableTxnMarker(number, 0, transaction_result=True, topics=topics) for number in range(MARKERS)]
    work = [instructions_run(turn) for turn in broker.turns(WriteTxnMarkersRequest(markers=markers), 1)]
    (answer,) = broker.answers.values()
    assert [one.producer_id for one in answer.markers] == list(range(MARKERS))
    codes = {part.error_code for one in answer.markers for topic in one.topics for part in topic.partitions}
    assert codes == {Error.NONE}
    assert max(work) <= PER_TURN_OF_STEPS


def test_markers_of_large_transactions_have_turns_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each marker commits all offsets of a transaction, and a request may have very many markers."""
    monkeypatch.setattr(budget, "COORDINATOR_UNITS_PER_TURN", 60)
    broker = Coordinator()
    runtime, now_ms = broker.requests.groups, broker.brokers.now_ms
    some = [Commit("orders", ORDERS, number, 9, -1, "") for number in range(300)]
    for producer_id in range(10):
        committer = Committer("g", -1, "", None, 3, producer=(producer_id, 0))
        runtime.write(0, Doing(partial(_committing, committer, some)), now_ms)
        broker.settle()
    topics = [WritableTxnMarkerTopic("__consumer_offsets", [0])]
    markers = [WritableTxnMarker(number, 0, transaction_result=True, topics=topics) for number in range(10)]
    left = []
    for turn in broker.turns(WriteTxnMarkersRequest(markers=markers), 1):
        turn()
        left.append(len(runtime.partitions[0].state.open))
    assert left[-1] == 0
    assert max(before - after for before, after in zip([10, *left], left, strict=False)) == 3


def _committing(committer: Committer, some: list[Commit], shard: GroupShard, context: Context) -> CoordinatorResult:
    return commit(committer, some, shard.classic, GroupConfig(), context)


def test_all_coordinators_share_what_a_turn_may_do() -> None:
    """A turn did a portion of every group of every partition, and again of the transactions."""
    broker = Coordinator()
    of_groups, of_ids = broker.requests.groups.partitions[0], broker.requests.transactions.partitions[0]
    now_ms = broker.brokers.now_ms
    for number in range(COORDINATOR_UNITS_PER_TURN):
        of_groups.timers.set(GroupTimer("session", f"g{number}", "m"), now_ms)
        of_ids.timers.set(Timeout(f"t{number}"), now_ms)
    for runtime in (broker.requests.groups, broker.requests.transactions):
        runtime._timed_ms = 0
        runtime._hasten()
    others = [len(of_groups.timers) - COORDINATOR_UNITS_PER_TURN, len(of_ids.timers) - COORDINATOR_UNITS_PER_TURN]
    left = [COORDINATOR_UNITS_PER_TURN, COORDINATOR_UNITS_PER_TURN]
    fired = []
    for turn in broker.due():
        turn()
        now = [len(of_groups.timers) - others[0], len(of_ids.timers) - others[1]]
        fired.append([before - after for before, after in zip(left, now, strict=True)])
        left = now
    assert sum(map(sum, fired)) == 2 * COORDINATOR_UNITS_PER_TURN
    assert 0 < max(map(sum, fired)) <= COORDINATOR_UNITS_PER_TURN / 2, (
        "to end a timer is a unit, and so is what follows"
    )
    assert fired[1][1], "the ids had no room in the first turn, and come first in the next one"


def test_the_protocols_of_a_group_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic, "GROUP_PROTOCOLS", 5)
    broker = Coordinator()

    def joins(instance: str, count: int) -> int:
        listed = [JoinGroupRequestProtocol(f"p{number}", b"") for number in range(count)]
        answer = broker.ask(
            JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                group_instance_id=instance,
                protocol_type="consumer",
                protocols=listed,
            )
        )
        return -1 if answer is None else int(answer.error_code)

    assert joins("a", 2) == Error.NONE
    assert joins("b", 4) == Error.GROUP_MAX_SIZE_REACHED
    assert joins("b", 3) == -1, "it waits for the other one"


def test_an_id_that_is_named_very_often_tells_its_partitions_some_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_handler, "TRANSACTION_PARTITIONS", 3)
    broker, known = situated("transaction")
    asked = [known["transactional_id"]] * 6
    states = broker.ask(DescribeTransactionsRequest(asked)).transaction_states
    assert [one.transactional_id for one in states] == asked
    assert [one.error_code for one in states] == [0, 0, 0, 0, Error.INVALID_REQUEST, Error.INVALID_REQUEST]
    assert [len(one.topics) for one in states] == [1, 1, 1, 1, 0, 0]


def test_a_full_coordinator_takes_few_partitions_of_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, known = situated("transaction")
    monkeypatch.setattr(coordinator, "TRANSACTION_STATE_BYTES", 0)
    monkeypatch.setattr(operations, "SMALL_TRANSACTION", 2)
    added = []
    for number in (1, 2):
        topics = [AddPartitionsToTxnTopic("orders", [number])]
        producer = known["producer_id"], known["producer_epoch"]
        one = AddPartitionsToTxnTransaction(known["transactional_id"], *producer, topics=topics)
        answer = broker.ask(AddPartitionsToTxnRequest(transactions=[one]))
        (part,) = answer.results_by_transaction[0].topic_results[0].results_by_partition
        added.append(part.partition_error_code)
    assert added == [Error.NONE, Error.POLICY_VIOLATION]
