"""Real processes, sockets and fsync, and `kill -9` in a loop while clients write: nothing acknowledged is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from kraft.admin import AdminClient, AdminError, ConfigChange, QuorumDescription, ResourceType, open_admin
from kraft.invariants.disks import Ledger
from kraft.sim.protocol.files import QUORUM, run_of_nodes
from metadata_log.disk import OsDisk
from metadata_log.log.quorum_state_file import read_quorum_state
from metadata_log.records.batch import RecordBatch
from metadata_log.records.frame import decode_record
from metadata_log.records.metadata import ConfigRecord
from metadata_log.records.record import records
from support.controller_processes import IDS, Processes
from support.interop.kafka_or_skip import skip_here
from support.tlc import KafkaUnavailable, explain, jar, judge

WRITERS = 16


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    some = Processes(tmp_path)
    try:
        yield some
    finally:
        print(some.errors())
        for node_id in tuple(some.running):
            some.kill(node_id)


async def write(admin: AdminClient, writer: int, acknowledged: dict[str, list[str]]) -> None:
    """One client that always has one write outstanding; each is a change, so each leaves a record."""
    name = f"writer-{writer}"
    value = 1000
    while True:
        value += 1
        change = ConfigChange(
            resource_type=ResourceType.CLIENT_METRICS, resource_name=name, key="interval.ms", value=str(value)
        )
        await admin.alter_configs([change])
        acknowledged[name].append(str(value))


async def quorum_when(admin: AdminClient, holds: Callable[..., bool]) -> QuorumDescription:
    """The quorum once it is as wanted; each question waits for its answer, so this does not spin."""
    while True:
        try:
            quorum = await admin.describe_quorum()
        except AdminError:
            continue
        if holds(quorum):
            return quorum


def is_whole(offset: int) -> Callable[[QuorumDescription], bool]:
    """All three voters have at least this much of the log."""
    return lambda quorum: all(voter.log_end_offset >= offset for voter in quorum.voters) and len(quorum.voters) == 3


async def kill_leaders(
    processes: Processes, rounds: int, acknowledged: dict[str, list[str]], writers: int = WRITERS
) -> None:
    """Under load: kill the leader, wait until the next one commits, bring the old one back, wait until it caught up."""
    everywhere = tuple(processes.endpoints.values())
    async with open_admin(everywhere) as admin, open_admin(everywhere) as observer, trio.open_nursery() as nursery:
        for writer in range(writers):
            acknowledged[f"writer-{writer}"] = []
            nursery.start_soon(write, admin, writer, acknowledged)
        await quorum_when(observer, is_whole(1))
        for _ in range(rounds):
            quorum = await observer.describe_quorum()
            victim, epoch = quorum.leader_id, quorum.leader_epoch
            processes.kill(victim)
            after = await quorum_when(observer, lambda now, epoch=epoch: now.leader_epoch > epoch)
            await quorum_when(observer, lambda now, end=after.high_watermark: now.high_watermark > end + WRITERS)
            processes.start(victim)
            last = await observer.describe_quorum()
            await quorum_when(observer, is_whole(last.high_watermark))
        nursery.cancel_scope.cancel()


def check(processes: Processes, acknowledged: dict[str, list[str]]) -> None:
    """Over the files: promises of consensus, and every acknowledged write on a majority."""
    ledger = Ledger(IDS)
    logs = {node_id: processes.batches(node_id) for node_id in IDS}
    for node_id, log in logs.items():
        ledger.note_log(node_id, log, -1)
        state = read_quorum_state(OsDisk(), f"{processes.log_dir(node_id)}/__cluster_metadata-0")
        assert state is not None
        ledger.note_leader(node_id, state.leader_epoch, state.leader_id)
    written = {node_id: writes_in(log) for node_id, log in logs.items()}
    for name, values in acknowledged.items():
        for value in values:
            holders = [node_id for node_id in IDS if (name, value) in written[node_id]]
            assert len(holders) >= 2, f"{name}={value} was acknowledged and is only in the logs of {holders}"


def writes_in(log: list[RecordBatch]) -> set[tuple[str, str | None]]:
    found = set()
    for batch in log:
        if not batch.is_control:
            for one in records(batch):
                record = decode_record(one.value or b"").record
                if isinstance(record, ConfigRecord):
                    found.add((record.resource_name, record.value))
    return found


@pytest.mark.parametrize("rounds", [5, pytest.param(50, marks=pytest.mark.soak)])
async def test_killed_leaders_lose_nothing_that_was_acknowledged(processes: Processes, rounds: int) -> None:
    acknowledged: dict[str, list[str]] = {}
    for node_id in IDS:
        processes.start(node_id)
    with trio.fail_after(60 + 10 * rounds):
        await kill_leaders(processes, rounds, acknowledged)
    assert processes.stop() == dict.fromkeys(IDS, 0)
    count = sum(map(len, acknowledged.values()))
    print("acknowledged", count)
    assert count > rounds * WRITERS
    check(processes, acknowledged)


async def test_a_real_quorum_with_killed_leaders_is_a_behaviour(tmp_path: Path) -> None:
    try:
        jar()
    except KafkaUnavailable as unavailable:
        skip_here(f"TLC cannot be run here: {unavailable}")
    processes = Processes(tmp_path, tells_steps=True)
    try:
        for node_id in IDS:
            processes.start(node_id)
        with trio.fail_after(120):
            await kill_leaders(processes, 3, {}, writers=2)
        assert processes.stop() == dict.fromkeys(IDS, 0)
    finally:
        print(processes.errors())
        for node_id in tuple(processes.running):
            processes.kill(node_id)
    run = run_of_nodes("real", map(processes.steps, IDS))
    assert sum('what |-> "Restart"' in step for step in run.steps) == len(IDS) + 3
    directory = tmp_path / "tlc"
    directory.mkdir()
    found = judge(QUORUM, [run], directory)
    assert (found.violated, found.whole) == ("", (1,)), explain(directory, QUORUM, [run])
