"""A node that lacks most of the log takes a large snapshot in pieces: in little memory, through resets, damage and its
own death, while the quorum serves. Our nodes as processes, behind proxies.
"""

from __future__ import annotations

import filecmp
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from test_link_faults import Writer

from kraft.history_checker import check_history
from metadata_log.disk import OsDisk
from metadata_log.log.log import MetadataLog
from metadata_log.log.quorum_state_file import StoredElection, write_quorum_state
from metadata_log.log.snapshot import snapshot_name
from metadata_log.log.snapshot_writer import SnapshotWriter
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import ConfigRecord, FeatureLevelRecord
from metadata_log.types import OffsetAndEpoch
from support.interop.mixed_quorum import batches_in, end_of, values_in
from support.interop.our_nodes import our_controller, our_format
from support.interop.real_kafka import CLUSTER_ID, Nodes, QuorumLayout, eventually
from support.interop.tcp_proxy import Damage, Proxies
from support.loopback import free_ports
from support.wire import active_controller, leader_of

MIB: Final = 1 << 20
SPEED: Final = 32 * MIB
"""Bytes a second, so that there is time for something to happen."""
MEMORY_MIB: Final = 80
"""What a download may cost either side at most, however large the snapshot is: its largest batches have 8 MiB."""
SNAPSHOT: Final = OffsetAndEpoch(epoch=3, offset=500_000)
CONFIG_BYTES: Final = 30_000
NAMES: Final = 50
FIRST_NODES: Final = (1, 2)
LATE: Final = 3
"""The node that starts late, without any of the log."""


def config(number: int) -> bytes:
    """A large record; the metadata stay small, as there are few names."""
    value = f"{number:010d}" * (CONFIG_BYTES // 10)
    return encode_record(
        ConfigRecord(resource_type=16, resource_name=f"n{number % NAMES}", name="metrics", value=value), 0
    )


def write_snapshot(partition: Path, size_bytes: int) -> None:
    writer = SnapshotWriter(
        OsDisk(), str(partition), SNAPSHOT, timestamp_ms=0, last_contained_log_timestamp=1_800_000_000_000
    )
    writer.append((encode_record(FeatureLevelRecord(name="metadata.version", feature_level=30), 0),), 0)
    for number in range(size_bytes // CONFIG_BYTES + 1):
        writer.append((config(number),), 0)
    writer.freeze(0)


def write_old_log(partition: Path) -> None:
    """Write the log that the late node had when it was last heard of."""
    log = MetadataLog.open(OsDisk(), str(partition))
    log.append(build_batch(0, 1, 0, [encode_record(FeatureLevelRecord(name="metadata.version", feature_level=30), 0)]))
    log.append(build_batch(1, 1, 0, [config(0)]))
    log.close()
    write_quorum_state(OsDisk(), str(partition), StoredElection(leader_epoch=1))


def memory_mib(nodes: Nodes, node: int, what: str = "VmRSS") -> float:
    """The memory of a node now, or at most so far ("VmHWM")."""
    status = Path(f"/proc/{nodes.processes[node].popen.pid}/status").read_text()
    found = re.search(rf"{what}:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


class Download:
    """The part of the snapshot that has arrived at the late node."""

    def __init__(self, partition: Path) -> None:
        self.snapshot = partition / snapshot_name(SNAPSHOT)
        self._partition = partition

    @property
    def size_bytes(self) -> int:
        """Of the partial file; 0 if there is none."""
        return sum(path.stat().st_size for path in self._partition.glob("*.part"))

    def wait_for(self, size_bytes: int, *, may_begin_anew: bool) -> None:
        """Wait until so much has arrived."""
        seen = 0

        def is_there() -> bool:
            nonlocal seen
            assert not self.snapshot.exists(), "the download was too quick for the test"
            before, seen = seen, self.size_bytes
            assert seen >= before or may_begin_anew, f"it began anew after {before} bytes"
            return seen >= size_bytes

        eventually(is_there, f"{size_bytes} bytes of the snapshot arrive", 120)


def flipping(at: Callable[[], bool]) -> Damage:
    """Flip one byte, once it is time."""
    done: list[int] = []

    def damage(data: bytes) -> bytes:
        if done or len(data) < 10_000 or not at():
            return data
        done.append(1)
        return data[:5000] + bytes([data[5000] ^ 1]) + data[5001:]

    return damage


@pytest.mark.parametrize("size_mib", [64, pytest.param(2048, marks=pytest.mark.soak)])
def test_a_large_snapshot_is_fetched_in_bounded_memory_despite_faults(tmp_path: Path, size_mib: int) -> None:
    ports = free_ports(6)
    advertised, behind = dict(zip((1, 2, 3), ports, strict=False)), dict(zip((1, 2, 3), ports[3:], strict=True))
    layout = QuorumLayout(tmp_path, CLUSTER_ID, advertised, ("controller.quorum.append.linger.ms=0",), behind=behind)
    our_format(layout)
    for node in layout.ports:
        layout.partition(node).mkdir()
    write_snapshot(layout.partition(1), size_mib * MIB)
    name = snapshot_name(SNAPSHOT)
    shutil.copy(layout.partition(1) / name, layout.partition(2) / name)
    write_old_log(layout.partition(LATE))
    nodes = Nodes(layout, our_controller(layout), name="ours")
    writer, download = Writer(layout), Download(layout.partition(LATE))
    with Proxies(advertised, behind) as proxies:
        try:
            nodes.start(*FIRST_NODES)
            eventually(lambda: leading(layout) in FIRST_NODES, "one of two leads", 120)
            leader = leading(layout)
            leader_before = memory_mib(nodes, leader, "VmHWM")
            with writer.running():
                writer.wait_for_progress()
                interrupt(nodes, proxies, download, leader)
                late_before = start_alone(nodes, proxies)
                proxies.heal()
                eventually(download.snapshot.exists, "the snapshot is taken", 600)
                writer.wait_for_progress()
            follow(layout)
            late_cost = memory_mib(nodes, LATE, "VmHWM") - late_before
            leader_cost = memory_mib(nodes, leader, "VmHWM") - leader_before
            nodes.processes.pop(LATE).kill()
            shutil.rmtree(layout.log_dir(LATE))
            our_format(layout, LATE)
            nodes.start(LATE)
            follow(layout)
            assert set(nodes.stop().values()) == {0}
        finally:
            nodes.kill()
    print(f"{size_mib} MiB: the node took {late_cost:.0f} MiB for it, and its leader {leader_cost:.0f}")
    assert late_cost < MEMORY_MIB
    assert leader_cost < MEMORY_MIB
    assert filecmp.cmp(download.snapshot, layout.partition(leader) / name, shallow=False)
    assert not download.size_bytes
    assert set(writer.acknowledged) <= set(values_in(batches_in(layout.partition(LATE))))
    history = check_history(*(str(layout.log_dir(node)) for node in layout.ports))
    assert history.is_legal, "\n".join(map(str, history.findings))


def leading(layout: QuorumLayout) -> int:
    """The leader of the two nodes that have the log."""
    return active_controller(layout.ports[1])


def start_alone(nodes: Nodes, proxies: Proxies) -> float:
    """Start the late node, cut from the others; what it takes by itself."""
    proxies.isolate(LATE)
    nodes.start(LATE)
    nodes.processes[LATE].wait_for("listening")
    return memory_mib(nodes, LATE)


def follow(layout: QuorumLayout) -> None:
    """Wait until the late node has what the leader has."""
    end = end_of(layout.partition(1))
    eventually(lambda: end_of(layout.partition(LATE)) >= end, "it has the log, too", 600)
    leader_of(layout)


def interrupt(nodes: Nodes, proxies: Proxies, download: Download, leader: int) -> None:
    """A reset, after which it goes on; a flipped bit, after which it begins anew; and the death of the node."""
    link = proxies.link(LATE, leader)
    link.bytes_per_s = SPEED
    nodes.start(LATE)
    download.wait_for(8 * MIB, may_begin_anew=True)
    proxies.reset(LATE, leader)
    download.wait_for(20 * MIB, may_begin_anew=False)
    link.damage = flipping(lambda: True)
    nodes.processes[LATE].wait_for("is damaged")
    assert not download.snapshot.exists()
    link.damage = None
    eventually(lambda: download.size_bytes < 8 * MIB, "what was damaged is thrown away")
    download.wait_for(8 * MIB, may_begin_anew=False)
    nodes.processes.pop(LATE).kill()
    assert download.size_bytes
    assert end_of(download.snapshot.parent) == 2, "what it had stays, as long as there is nothing better"
