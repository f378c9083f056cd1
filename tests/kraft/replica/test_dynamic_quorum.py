"""Dynamic quorums (KIP-853), in memory: formatted by us, and begun by Apache Kafka."""

from __future__ import annotations

from functools import cache
from typing import Any

from kraft.process.hosting import host_controller
from kraft.quorum.voter_history import DYNAMIC
from metadata_log.memory_disk import MemoryDisk
from support.kraft.loaded_replica import batches_of, controller, loaded_disk
from support.kraft.replica_net import Net
from support.kraft.simulated_quorum import NO_VOTERS


@cache
def dynamic3() -> dict[int, MemoryDisk]:
    return {node: loaded_disk("clusters", f"dynamic3/nodes/c{node}") for node in (1, 2, 3, 4)}


def real_dynamic_net(**changes: Any) -> Net:
    disks = {node: disk.fork() for node, disk in dynamic3().items()}
    return Net(4, application=host_controller, disks=disks, cluster_id=None, voters=NO_VOTERS, **changes)


def test_logs_of_kafkas_dynamic_quorum_continue_under_our_nodes() -> None:
    """Nothing that was committed is lost, and the new leader writes down where it listens now."""
    before = {node: batches_of(disk) for node, disk in dynamic3().items()}
    net = real_dynamic_net()
    assert {replica.replica.core.history.kraft_version for replica in net.processes.values()} == {DYNAMIC}
    voting = net.processes[1].replica.core.voters
    leader = net.elect()
    assert leader in voting.ids
    net.until(lambda: controller(net, leader).controller.is_active)
    core = net.processes[leader].replica.core
    own = core.voters.find(leader)
    assert own is not None
    assert own.endpoints.listeners[0].host == f"n{leader}"
    assert core.voters.keys == voting.keys
    net.advance(1500)
    for node, replica in net.processes.items():
        assert replica.replica.core.voters == core.voters, node
        assert replica.replica.core.is_voter == (node in voting.ids), node
    held = {
        offset: data
        for batches in before.values()
        for offset, data in batches.items()
        if sum(other.get(offset) == data for other in before.values()) >= voting.majority
    }
    start = core.log.start_offset
    assert {at: data for at, data in held.items() if at >= start}.items() <= batches_of(net.disks[leader]).items()
