"""State machines on running nodes: what a program that embeds one sees of it, while the power fails in virtual time."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import pytest
import trio
from msgspec import Struct
from msgspec.msgpack import decode, encode
from trio.testing import MockClock

import kraft
from kraft.node import state_machine_node
from kraft.process.hosting import host_raw_log
from kraft.sim.workloads.linearizability import Operation, Verdict, check
from kraft.testing import Cluster
from metadata_log.errors import CorruptBatch
from transport.faults import Faults
from transport.protocol.errors import Error

LONG_S = 120


class Add(Struct, frozen=True, tag=True):
    key: str
    amount: int


class Move(Struct, frozen=True, tag=True):
    source: str
    target: str


class Accounts(kraft.StateMachine[Add | Move, int]):
    """Numbers by name."""

    def __init__(self) -> None:
        self.accounts: dict[str, int] = {}

    def apply(self, command: Add | Move, at: kraft.Position) -> int:
        match command:
            case Add(key, amount):
                self.accounts[key] = self.accounts.get(key, 0) + amount
                return self.accounts[key]
            case Move(source, target):
                if source not in self.accounts:
                    raise kraft.CommandRefused(f"there is no {source}")
                self.accounts[target] = self.accounts.pop(source)
                return self.accounts[target]

    def snapshot(self) -> bytes:
        return encode(self.accounts)

    def restore(self, data: bytes) -> None:
        self.accounts = decode(data, type=dict[str, int])

    def value(self) -> int:
        return sum(self.accounts.values())

    def of(self, key: str) -> int:
        return self.accounts.get(key, 0)


async def test_commands_and_reads_are_accepted_at_any_node(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=3, seed=1, state_machine=Accounts) as cluster:
        for count, node_id in enumerate(cluster.ids, 1):
            assert await cluster.machine(node_id).submit(Add("a", 10)) == 10 * count
            for other in cluster.ids:
                assert await cluster.machine(other).read(linearizable=True) == 10 * count
                assert await cluster.machine(other).read(lambda accounts: accounts.of("a")) == 10 * count
        assert await cluster.machine(1).read(linearizable=False) == 30
        cluster.check()


async def test_the_caller_gets_the_refusal_of_apply(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=3, seed=2, state_machine=Accounts) as cluster:
        await cluster.leader()
        for node_id in cluster.ids:
            with pytest.raises(kraft.CommandRefused, match="there is no missing"):
                await cluster.machine(node_id).submit(Move("missing", "b"))


async def test_an_invalid_command_is_refused_before_submission(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=1, seed=3, state_machine=Accounts) as cluster:
        node = cluster.machine(1)
        with pytest.raises(TypeError):
            await node.submit(object())
        with pytest.raises(kraft.AppendRejected) as refused:
            await node.submit(Add("x" * 10_000_000, 1))
        assert refused.value.error == Error.MESSAGE_TOO_LARGE
        with pytest.raises(kraft.AppendRejected) as refused:
            await node.append([b"raw"])
        assert refused.value.error == Error.INVALID_REQUEST
        with pytest.raises(kraft.CommandRefused, match="cannot be read"):
            await node.submit("a string is no command of this machine")
        assert await node.submit(Add("a", 1)) == 1


async def test_a_partitioned_leader_answers_no_read(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=3, seed=4, state_machine=Accounts) as cluster:
        old = await cluster.leader()
        node = cluster.machine(old)
        assert await node.submit(Add("a", 1)) == 1
        cluster.network.partition({old}, cluster.others(old))
        async with trio.open_nursery() as nursery:
            seen: list[int] = []

            async def read() -> None:
                seen.append(await node.read())

            nursery.start_soon(read)
            new = await cluster.leader(among=cluster.others(old))
            assert await cluster.machine(new).submit(Add("a", 1)) == 2
            await trio.sleep(10)
            assert seen == []
            assert await node.read(linearizable=False) == 1
            cluster.network.heal()
        assert seen == [2]


async def test_a_watcher_receives_every_change_once_in_order(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=3, seed=6, state_machine=Accounts) as cluster:
        told: dict[int, list[Any]] = {node_id: [] for node_id in cluster.ids}
        moves: list[Any] = []
        await cluster.leader()

        async def follow(watch: kraft.Watch[Any, Any], into: list[Any], count: int) -> None:
            async for change in watch:
                into.append((change.command, change.result, change.at))
                if len(into) == count:
                    return

        with trio.fail_after(LONG_S):
            async with trio.open_nursery() as nursery:
                for node_id in cluster.ids:
                    nursery.start_soon(follow, cluster.machine(node_id).watch(), told[node_id], 21)
                nursery.start_soon(follow, cluster.machine(2).watch(types=("Move",)), moves, 1)
                for count in range(20):
                    await cluster.machine(1 + count % 3).submit(Add("a", count))
                    with pytest.raises(kraft.CommandRefused):
                        await cluster.machine(1).submit(Move("missing", "a"))
                await cluster.machine(1).submit(Move("a", "b"))
        assert told[1] == told[2] == told[3]
        assert [command for command, _, _ in told[1]] == [*(Add("a", count) for count in range(20)), Move("a", "b")]
        assert [command for command, _, _ in moves] == [Move("a", "b")]


async def test_a_watcher_that_falls_behind_gets_an_error(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_machine_node, "UNREAD_CHANGES", 5)
    async with Cluster(controllers=1, seed=7, state_machine=Accounts) as cluster:
        node = cluster.machine(1)
        watch = node.watch()
        for _ in range(6):
            await node.submit(Add("a", 1))
        with pytest.raises(kraft.ChangesSkipped, match="more changes are unread than are kept"):
            await anext(watch)


async def test_a_watcher_gets_an_error_when_a_snapshot_replaces_changes(autojump_clock: MockClock) -> None:
    settings = {
        "metadata.log.max.record.bytes.between.snapshots": "2000",
        "metadata.log.segment.bytes": "8388608",
        "internal.metadata.log.segment.bytes": "1024",
        "metadata.max.retention.bytes": "1000",
    }
    async with Cluster(controllers=3, seed=8, state_machine=Accounts, settings=settings) as cluster:
        leader = await cluster.leader()
        late = cluster.others(leader)[0]
        watch = cluster.machine(late).watch()
        cluster.network.partition({late}, cluster.others(late))
        for _ in range(200):
            await cluster.machine(leader).submit(Add("a", 1))
        with trio.move_on_after(70):
            await trio.sleep_forever()
        assert cluster.node(leader).status().log_start_offset > 0
        cluster.network.heal()
        with trio.fail_after(LONG_S), pytest.raises(kraft.ChangesSkipped, match="a snapshot has taken the place"):
            await anext(watch)
        assert await cluster.machine(late).read() == 200


async def test_a_stopping_node_releases_all_callers(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=3, seed=9, state_machine=Accounts) as cluster:
        leader = await cluster.leader()
        cluster.network.partition({leader}, cluster.others(leader))
        node = cluster.machine(leader)
        watch = node.watch()
        async with trio.open_nursery() as nursery:

            async def submit() -> None:
                with pytest.raises(kraft.NodeStopped):
                    await node.submit(Add("a", 1))

            async def read() -> None:
                with pytest.raises(kraft.NodeStopped):
                    await node.read()

            nursery.start_soon(submit)
            nursery.start_soon(read)
            await trio.sleep(0.1)
            await cluster.kill(leader)
        with pytest.raises(StopAsyncIteration):
            await anext(watch)
        with pytest.raises(kraft.NodeStopped):
            await node.submit(Add("a", 1))


async def test_a_named_client_repeats_its_command_after_a_full_restart(
    autojump_clock: MockClock,
) -> None:
    async with Cluster(controllers=3, seed=10, state_machine=Accounts) as cluster:
        session = await cluster.machine(1).open_session("till-7")
        assert (session.client, session.last_sequence) == ("till-7", 0)
        assert await session.submit(Add("a", 5), sequence=1) == 5
        for node_id in cluster.ids:
            await cluster.kill(node_id)
        for node_id in cluster.ids:
            await cluster.restart(node_id)
        again = await cluster.machine(2).open_session("till-7")
        assert (again.id, again.last_sequence) == (session.id, 1)
        assert await again.submit(Add("a", 5), sequence=1) == 5
        assert await again.submit(Add("a", 5), sequence=2) == 10
        assert again.last_sequence == 2
        with pytest.raises(kraft.Superseded):
            await again.submit(Add("a", 5), sequence=1)


async def test_a_log_without_state_machine_entries_is_refused(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=1, seed=11, application=host_raw_log) as cluster:
        await cluster.append([b"raw"])
        disks = cluster.disks

    async def open_it_as_a_machine() -> None:
        async with Cluster(controllers=1, seed=11, state_machine=Accounts) as cluster:
            await cluster.stop(1)
            cluster.disks.update(disks)
            await cluster.restart(1)
            await trio.sleep(LONG_S)

    with pytest.raises(CorruptBatch, match="not of a state machine's log"):
        await open_it_as_a_machine()


class NoTypes(kraft.StateMachine):  # type: ignore[type-arg]  # a class without type arguments is what is tested
    def apply(self, command: Any, at: kraft.Position) -> Any:
        return None

    def snapshot(self) -> bytes:
        return b""

    def restore(self, data: bytes) -> None:
        assert data == b""


async def test_a_state_machine_class_needs_its_command_and_result_types(autojump_clock: MockClock) -> None:
    with pytest.raises(TypeError, match=r"derive it from StateMachine\[Command, Result\]"):
        async with Cluster(controllers=1, state_machine=NoTypes):
            pass


def register(state: int, asked: tuple[str, int]) -> tuple[int, int]:
    """The model of an account for the checker."""
    kind, amount = asked
    return (state + amount, state + amount) if kind == "add" else (state, state)


async def history(seed: int, seconds: float) -> list[Operation]:
    """The operations of clients at all nodes while the network is bad and nodes die."""
    operations: list[Operation] = []
    faults = Faults(drop=0.02, delay_ms=(1, 30), reorder=True)
    rng = Random(f"history {seed}")

    async def client(cluster: Cluster, number: int) -> None:
        mine = Random(f"client {seed} {number}")
        while True:
            await trio.sleep(mine.random() * 0.3)
            node_id = mine.choice(cluster.ids)
            if node_id not in cluster.running:
                continue
            node, key = cluster.machine(node_id), mine.choice("ab")
            invoked = int(trio.current_time() * 1e6)
            asked = ("add", 1) if mine.random() < 0.5 else ("read", 0)
            returned: int | None = None
            output: int | None = None
            try:
                with trio.move_on_after(mine.choice((1, 30))):
                    if asked[0] == "add":
                        output = await node.submit(Add(key, 1))
                    else:
                        output = await node.read(partial(Accounts.of, key=key))
                    returned = int(trio.current_time() * 1e6)
            except kraft.NodeStopped:
                pass
            finally:
                # What is cut short when the run ends may have been done all the same, and seen by others.
                operations.append(
                    Operation(client=number, invoked=invoked, returned=returned, input=asked, output=output, key=key)
                )

    async with Cluster(controllers=3, seed=seed, faults=faults, state_machine=Accounts) as cluster:
        await cluster.leader()
        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(client, cluster, number)
            with trio.move_on_after(seconds):
                while True:
                    await trio.sleep(rng.random() * 3)
                    victim = rng.choice(cluster.ids)
                    if rng.random() < 0.5:
                        cluster.network.partition({victim}, cluster.others(victim))
                        await trio.sleep(rng.random() * 4)
                        cluster.network.heal()
                    else:
                        await cluster.kill(victim)
                        await trio.sleep(rng.random() * 2)
                        await cluster.restart(victim)
            nursery.cancel_scope.cancel()
        cluster.network.heal()
        cluster.check()
    return operations


@pytest.mark.parametrize(
    ("seed", "seconds"), [(1, 20.0), (2, 20.0), *(pytest.param(n, 200.0, marks=pytest.mark.soak) for n in range(3, 13))]
)
async def test_client_histories_of_a_state_machine_are_linearizable(
    autojump_clock: MockClock, seed: int, seconds: float
) -> None:
    operations = await history(seed, seconds)
    answered = [one for one in operations if one.returned is not None]
    assert len(answered) > seconds
    finding = check(operations, 0, register)
    assert finding.verdict is Verdict.LINEARIZABLE, finding


class NoValue(Accounts):
    value = kraft.StateMachine.value


async def test_read_without_a_value_or_query_is_a_type_error(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=1, seed=12, state_machine=NoValue) as cluster:
        with pytest.raises(TypeError, match="tell `read` what to look at"):
            await cluster.machine(1).read()
        assert await cluster.machine(1).read(lambda accounts: accounts.of("a")) == 0
