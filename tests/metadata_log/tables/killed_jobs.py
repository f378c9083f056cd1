"""Jobs that write tables, killed at a write."""

from __future__ import annotations

from typing import Any

from metadata_log.disk import make_directory, replace_file
from metadata_log.history import VIEWS
from metadata_log.memory_disk import MemoryDisk
from metadata_log.tables.cluster import ClusterOutcome, Job, materialize_cluster
from nightly_logs import DIRECTORY, Night
from table_rows import ROOT, everything

CLUSTER = "a/b c"
FEW = ("leader_history", "broker_history", "retention", "controller_elections")


def job(run: str = "run-1", views: tuple[str, ...] = tuple(VIEWS), **settings: Any) -> Job:
    return Job(root=ROOT, run=run, version="1", views=views, **settings)


def materialize(night: Night, disk: MemoryDisk, **settings: Any) -> ClusterOutcome:
    return materialize_cluster(night.disk(), DIRECTORY, CLUSTER, disk, job(**settings))


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    """Another disk with the same files, all of them durable."""
    made = MemoryDisk()
    for path, data in everything(disk).items():
        folder, _, name = path.rpartition("/")
        make_directory(made, folder)
        replace_file(made, folder, name, data)
    return made


class Killed(BaseException):
    """The process is gone."""


def kill_after(disk: MemoryDisk, operations: int) -> None:
    """Let so many operations through; the process is killed in front of the next one, and does nothing after that."""
    left = operations

    def hook(_: str, __: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed

    disk.on_operation = hook
