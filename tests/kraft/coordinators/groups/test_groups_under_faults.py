"""Consumer groups while answers are lost, appends fail, coordinators change and members stop.

What must hold is told by what the members believe, not by the code under test: a partition has one owner at a time,
committed offsets never go back, and no acknowledged commit is lost. Bugs that are planted are found, and the schedule
of events is shrunk.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from msgspec import Struct

from kraft.access.errors import ApiError
from kraft.coordinators.groups.consumer import group, groups, reconciling, replaying
from kraft.coordinators.groups.consumer.group import ConsumerGroup
from kraft.coordinators.groups.consumer.member import NOTHING
from kraft.coordinators.groups.offsets import Commit, Committer, commit
from kraft.coordinators.groups.state import NO_OFFSETS
from support.broker.consumer_world import image_of, topic_id
from support.broker.shard_world import Shard
from transport.protocol.errors import Error
from transport.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)

SESSION_MS = 45_000
MEMBERS = 4
LENGTH = 150
SEEDS = range(40)
Event = tuple[str, int]
EVENTS = (
    *("beat",) * 12,
    *(
        "lost",
        "unwritten",
        "wait",
        "wait",
        "commit",
        "commit",
        "commit",
        "failover",
        "leave",
        "silence",
        "grow",
        "join",
    ),
)


class Client(Struct):
    """A member as it sees itself."""

    member_id: str
    epoch: int = 0
    owned: frozenset[int] = frozenset()
    positions: dict[int, int] = {}
    heard_ms: int = 0
    is_full: bool = True
    """Whether the next heartbeat says everything again."""


class Violation(AssertionError):
    """A rule that must hold is broken."""


def expect(refused: ApiError, *errors: Error) -> None:
    """A member is refused for one of these reasons."""
    if refused.error not in errors:
        raise Violation(f"refused with {refused.error.name}")


class Run:
    """A coordinator, its members, and what was promised to them."""

    def __init__(self) -> None:
        self.world = Shard()
        self.size = 4
        self.clients = [Client(f"m{number}") for number in range(MEMBERS)]
        self.committed: dict[int, int] = {}
        self.reborn = 0

    def do(self, event: Event) -> None:
        kind, number = event
        client = self.clients[number % MEMBERS]
        match kind:
            case "beat":
                self.beat(client)
            case "lost":
                self.beat(client, is_lost=True)
            case "unwritten":
                self.beat(client, error=Error.NOT_ENOUGH_REPLICAS)
            case "wait":
                self.world.wait(500 + number % 4000)
            case "silence":
                self.world.wait(SESSION_MS // 2 + number % 5000)
            case "commit":
                self.commit(client, number)
            case "failover":
                self.world.restart()
                self.check_offsets()
            case "leave":
                self.leave(client)
            case "join":
                self.rejoin(client)
            case "grow":
                self.size = min(self.size + 1, 8)
                self.world.image = image_of({"a": self.size}, 10 + self.size)
        self.check_owners()

    def beat(self, client: Client, *, is_lost: bool = False, error: Error = Error.NONE) -> None:
        joins, says_all = client.epoch == 0, client.is_full or client.epoch == 0
        owned = sorted(client.owned)
        message = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=client.member_id,
            member_epoch=client.epoch,
            rebalance_timeout_ms=2 * SESSION_MS if says_all else -1,
            subscribed_topic_names=["a"] if says_all else None,
            topic_partitions=[]
            if joins or not owned
            else [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id("a"), owned)],
        )
        if error is not Error.NONE:
            # Nothing is written: the state is the one before, and the client hears of an error.
            state, log = self.world.state, list(self.world.log)
            with suppress(ApiError):
                self.world.ask(message, 1, error)
            assert self.world.state is state
            assert self.world.log == log
            client.is_full = True
            return
        try:
            answer = self.world.ask(message, 1)
        except ApiError as refused:
            if is_lost:
                client.is_full = True
                return
            expect(refused, Error.UNKNOWN_MEMBER_ID, Error.FENCED_MEMBER_EPOCH, Error.GROUP_ID_NOT_FOUND)
            client.epoch, client.owned, client.positions, client.is_full = 0, frozenset(), {}, True
            return
        client.is_full = is_lost
        if is_lost:
            return
        client.epoch, client.heard_ms = answer.member_epoch, self.world.now_ms
        if answer.assignment is not None:
            told = frozenset(one for topic in answer.assignment.topic_partitions for one in topic.partitions)
            kept = client.owned & client.positions.keys()
            client.positions = {
                one: client.positions[one] if one in kept else self.committed.get(one, 0) for one in told
            }
            client.owned = told

    def leave(self, client: Client) -> None:
        if client.epoch > 0:
            client.owned = frozenset()
            try:
                self.world.consumer(client.member_id, -1)
            except ApiError as refused:
                expect(refused, Error.UNKNOWN_MEMBER_ID, Error.GROUP_ID_NOT_FOUND)
        self.rejoin(client)

    def rejoin(self, client: Client) -> None:
        """A process that starts anew; the former one is gone without a word."""
        self.reborn += 1
        client.member_id, client.epoch, client.owned = f"m{MEMBERS + self.reborn}", 0, frozenset()
        client.positions, client.is_full = {}, True

    def commit(self, client: Client, number: int) -> None:
        if client.epoch <= 0 or not client.positions:
            return
        partition = sorted(client.positions)[number % len(client.positions)]
        offset = client.positions[partition] + 1
        committer = Committer("g", client.epoch, client.member_id, None, 9)
        wanted = [Commit("a", topic_id("a"), partition, offset, -1, "")]
        world = self.world
        try:
            operation = commit(committer, wanted, world.shard.classic, world.settings, world.context())
        except ApiError as refused:
            expect(refused, Error.UNKNOWN_MEMBER_ID, Error.STALE_MEMBER_EPOCH, Error.GROUP_ID_NOT_FOUND)
            return
        world.take(operation)
        client.positions[partition] = offset
        if offset < self.committed.get(partition, 0):
            raise Violation(f"{client.member_id} took the offset of {partition} back to {offset}")
        for other in self.live():
            if other is not client and partition in other.owned:
                raise Violation(f"{client.member_id} commits for {partition} of {other.member_id}")
        self.committed[partition] = offset
        self.check_offsets()

    def check_offsets(self) -> None:
        known = self.world.state.offsets.get("g", NO_OFFSETS)
        for partition, offset in self.committed.items():
            found = known.get(("a", partition))
            if found is None or found.offset != offset:
                raise Violation(f"the commit of {offset} for {partition} is lost: {found}")

    def check_owners(self) -> None:
        owners: dict[int, str] = {}
        for client in self.live():
            for partition in client.owned:
                other = owners.setdefault(partition, client.member_id)
                if other != client.member_id:
                    raise Violation(f"{partition} belongs to {other} and {client.member_id}")

    def live(self) -> list[Client]:
        """The members that nobody may take for gone."""
        since_ms = self.world.now_ms - SESSION_MS
        return [client for client in self.clients if client.epoch > 0 and client.heard_ms > since_ms]


def schedule_of(seed: int) -> list[Event]:
    rng = Random(seed)
    return [(rng.choice(EVENTS), rng.randrange(1 << 16)) for _ in range(LENGTH)]


def fault_of(schedule: list[Event]) -> str | None:
    """How a schedule ends; a bug may also show as an exception of the code."""
    run = Run()
    try:
        for event in schedule:
            run.do(event)
    except Exception as found:
        return f"{type(found).__name__}: {found}"
    return None


def shrunk(schedule: list[Event]) -> list[Event]:
    """The schedule without the parts that the fault does not need."""
    size = len(schedule) // 2
    while size:
        at = 0
        while at < len(schedule):
            shorter = schedule[:at] + schedule[at + size :]
            if fault_of(shorter) is not None:
                schedule = shorter
            else:
                at += size
        size //= 2
    return schedule


@pytest.mark.parametrize("seed", SEEDS)
def test_members_under_faults(seed: int) -> None:
    schedule = schedule_of(seed)
    fault = fault_of(schedule)
    assert fault is None, (fault, shrunk(schedule))


def test_the_schedules_reach_what_they_should() -> None:
    """Members own partitions, offsets are committed, and partitions move."""
    moved = 0
    for seed in SEEDS:
        run = Run()
        before: dict[int, str] = {}
        for event in schedule_of(seed):
            run.do(event)
            now = {partition: client.member_id for client in run.clients for partition in client.owned}
            moved += sum(before.get(partition) not in (None, owner) for partition, owner in now.items())
            before |= now
        assert run.committed
    assert moved > 100


# --------------------------------------------------------------------------------------------------------- planted bugs


def gives_away_what_another_holds(patch: Any) -> None:
    patch.setattr(ConsumerGroup, "held_near", lambda *_: {})


def takes_silence_for_revocation(patch: Any) -> None:
    patch.setattr(reconciling, "owns_any", lambda *_: False)


def forgets_what_is_to_be_revoked(patch: Any) -> None:
    right = replaying.with_assignment

    def wrong(member: Any, value: Any) -> Any:
        return groups.replace(right(member, value), revoking=NOTHING)

    patch.setattr(replaying, "with_assignment", wrong)


def takes_any_epoch_of_a_commit(patch: Any) -> None:
    patch.setattr("kraft.coordinators.groups.offsets.check_commit", lambda *_, **__: lambda *_: None)


def watches_no_heartbeats(patch: Any) -> None:
    right = groups.ConsumerGroups.watch

    def wrong(self: Any, watch: Any, group_id: str, member_id: str, timeout_ms: int, context: Any) -> None:
        right(self, watch, group_id, member_id, timeout_ms // 4, context)

    patch.setattr(groups.ConsumerGroups, "watch", wrong)


def keeps_the_epoch_when_it_revokes(patch: Any) -> None:
    right = reconciling._updated

    def wrong(member: Any, state: Any, epoch: int, assigned: Any, revoking: Any) -> Any:
        return right(member, state, epoch, assigned, NOTHING)

    patch.setattr(reconciling, "_updated", wrong)


def frees_without_an_end(patch: Any) -> None:
    right = group.changed_owners

    def wrong(owners: Any, old: Any, new: Any) -> Any:
        return right(owners, old, None)

    patch.setattr(group, "changed_owners", wrong)


BUGS: tuple[Callable[[Any], None], ...] = (
    gives_away_what_another_holds,
    takes_silence_for_revocation,
    forgets_what_is_to_be_revoked,
    takes_any_epoch_of_a_commit,
    watches_no_heartbeats,
    keeps_the_epoch_when_it_revokes,
    frees_without_an_end,
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found_and_shrunk(bug: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    found = next((schedule for seed in range(400) if fault_of(schedule := schedule_of(seed)) is not None), None)
    assert found is not None, "no seed finds it"
    short = shrunk(found)
    assert len(short) <= 12, short
    assert fault_of(short) is not None
