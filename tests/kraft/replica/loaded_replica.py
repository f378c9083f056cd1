"""A directory of real Kafka, loaded by a replica."""

from __future__ import annotations

from kraft.controller.server import ControllerServer
from metadata_log.log.segment import parse_file_name
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch import scan
from support.kraft.replica_net import DIRECTORY, Net
from support.real_data import archive

PARTITION = f"{DIRECTORY}/__cluster_metadata-0"


def loaded_disk(name: str, prefix: str) -> MemoryDisk:
    """A disk that holds a real log directory, all of it durable."""
    disk = MemoryDisk()
    for path, content in archive(name).items():
        if path.startswith(f"{prefix}/"):
            target = f"{DIRECTORY}/{path[len(prefix) + 1 :]}"
            disk.mkdir(target.rpartition("/")[0])
            file = disk.open(target, create=True)
            file.append(content)
            file.fsync()
            file.close()
    for directory in ("", DIRECTORY, PARTITION):
        disk.fsync_dir(directory)
    return disk


def batches_of(disk: MemoryDisk) -> dict[int, bytes]:
    """Every batch in a directory's log by its first offset."""
    segments = [name for name in disk.list(PARTITION) if parse_file_name(name) is not None]
    return {batch.base_offset: batch.data for name in segments for batch in scan(disk.read(f"{PARTITION}/{name}"))}


def controller(net: Net, node: int) -> ControllerServer:
    hosted = net.processes[node].application
    assert isinstance(hosted, ControllerServer)
    return hosted
