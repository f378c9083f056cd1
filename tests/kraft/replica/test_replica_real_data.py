"""Our replicas on the directories of a real Apache Kafka 4.3.1 quorum, in memory."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest

from kraft.process.hosting import host_controller, host_raw_log
from kraft.process.opening import open_process
from loaded_replica import PARTITION, batches_of, controller, loaded_disk
from metadata_log.errors import DirectoryError
from metadata_log.log.segment import parse_file_name
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from support.kraft.replica_net import START_MS, Net, options, voter_set
from transport.protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from transport.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource


@cache
def static3() -> dict[int, MemoryDisk]:
    return {node: loaded_disk("static3", f"nodes/c{node}") for node in (1, 2, 3)}


def real_net(**changes: Any) -> Net:
    disks = {node: disk.fork() for node, disk in static3().items()}
    return Net(3, application=host_controller, disks=disks, cluster_id=None, **changes)


def test_logs_of_a_real_quorum_continue_under_our_nodes() -> None:
    """Every record that a majority of the three holds stays, byte for byte, and new ones follow."""
    before = {node: batches_of(disk) for node, disk in static3().items()}
    everywhere = list(before.values())
    held = {
        offset: data
        for batches in everywhere
        for offset, data in batches.items()
        if sum(other.get(offset) == data for other in everywhere) >= 2
    }
    epochs = [max(batch.epoch for data in batches.values() for batch in scan(data)) for batches in everywhere]
    net = real_net()
    leader = net.elect()
    assert net.processes[leader].replica.core.epoch > max(epochs)
    net.until(lambda: controller(net, leader).controller.is_active)
    config = AlterableConfig(name="interval.ms", config_operation=0, value="12345")
    resource = AlterConfigsResource(resource_type=16, resource_name="ours", configs=[config])
    response = net.ask(leader, IncrementalAlterConfigsRequest(resources=[resource]))
    assert isinstance(response, IncrementalAlterConfigsResponse)
    assert response.responses[0].error_code == 0
    net.advance(1500)
    latest = net.processes[leader].replica.core.log.high_watermark
    assert latest > max(held)
    for node in net.processes:
        now = batches_of(net.disks[node])
        # A node's log may begin later than another's, where its own snapshot stands for what came before.
        start = net.processes[node].replica.core.log.start_offset
        assert {offset: data for offset, data in held.items() if offset >= start}.items() <= now.items(), node
        image = controller(net, node).controller.history.committed
        assert image.configs.of((16, "ours"))["interval.ms"] == "12345", node
    images = [controller(net, node).controller.history.committed for node in net.processes]
    assert len({image.features.all_levels() for image in images}) == 1


def test_an_activation_on_a_real_log_writes_only_registrations() -> None:
    """Without NoOps three records follow: each controller has a new incarnation, and says where it listens now."""
    net = real_net(max_idle_interval_ms=0)
    leader = net.elect()
    end = net.processes[leader].replica.core.log.end_offset
    net.advance(300)
    assert net.processes[leader].replica.core.log.end_offset == end + 3
    known = controller(net, leader).controller.history.committed.controllers.by_id
    ports = {
        voter.id: voter.endpoints.listeners[0].port for voter in net.processes[leader].options.replica.voters.voters
    }
    assert {node: known[node].endpoints[0].port for node in ports} == ports
    levels = dict(controller(net, leader).finalized_features()[0])
    assert levels["metadata.version"] == 30


def test_the_image_of_a_real_log_has_its_configs_and_controllers() -> None:
    net = real_net()
    leader = net.elect()
    image = controller(net, leader).controller.history.committed
    assert sorted(image.controllers.by_id) == [1, 2, 3]
    assert image.configs.of((16, "sub-profiles"))["interval.ms"] == "30000"


def test_a_raw_log_is_not_served_on_a_directory_with_snapshots() -> None:
    with pytest.raises(DirectoryError, match="is none of a raw log"):
        open_process(
            options=options(1, voter_set(3), cluster_id=None),
            disk=static3()[1].fork(),
            rng=Random(1),
            application=host_raw_log,
            now_ms=START_MS,
        )


def test_a_real_log_above_offset_0_needs_a_snapshot() -> None:
    disk = static3()[1].fork()
    segments = sorted(name for name in disk.list(PARTITION) if parse_file_name(name) is not None)
    for name in disk.list(PARTITION):
        if name.endswith(".checkpoint") or name.startswith(segments[0][:20]):
            disk.remove(f"{PARTITION}/{name}")
    with pytest.raises(DirectoryError, match="no snapshot covers what came before"):
        open_process(
            options=options(1, voter_set(3), cluster_id=None),
            disk=disk,
            rng=Random(1),
            application=host_controller,
            now_ms=START_MS,
        )


def test_a_snapshot_ahead_of_the_log_replaces_it() -> None:
    """As after a crash between taking a snapshot from the leader and cutting the log (`truncateToLatestSnapshot`)."""
    disk = static3()[1].fork()
    segments = sorted(name for name in disk.list(PARTITION) if parse_file_name(name) is not None)
    newest = max(name for name in disk.list(PARTITION) if name.endswith(".checkpoint"))
    offset = int(newest[:20])
    for name in segments:
        if parse_file_name(name) not in (None, 0):
            disk.remove(f"{PARTITION}/{name}")
    replica, _ = open_process(
        options=options(1, voter_set(3), cluster_id=None),
        disk=disk,
        rng=Random(1),
        application=host_controller,
        now_ms=START_MS,
    )
    assert (replica.replica.log.start_offset, replica.replica.log.end_offset) == (offset, offset)
    assert replica.replica.core.epoch >= int(newest[21:31])
    assert replica.replica.status().applied_offset == offset
