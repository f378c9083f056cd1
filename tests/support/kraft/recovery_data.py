"""The directories of `tests/data/recover.tar.xz`: three real quorums of Kafka, each copy as SIGKILL left it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec.json import encode

from kraft.operate.recover.description import RECOVERY_FILE, DescribedVoter, Description
from kraft.operate.recover.inventory import read_inventory
from kraft.operate.recover.plan import Plan, PlanOptions, make_plan
from metadata_log.disk import OsDisk
from metadata_log.types import METADATA_PARTITION, Uuid
from support.real_data import archive, unpack

CASES: tuple[dict[str, Any], ...] = tuple(json.loads(archive("recover")["cases.json"]))


def unpack_cluster(cluster: str, target: Path) -> Path:
    """The directories of one quorum: static, dynamic or old39."""
    return unpack("recover", cluster, target / cluster)


def paths(folder: Path, *names: str) -> list[str]:
    """The paths of directories in a folder."""
    return [str(folder / name) for name in names]


def plan_of(folder: Path, controllers: str, brokers: str = "", options: PlanOptions | None = None) -> Plan:
    """The plan for directories that are named in one string."""
    disk = OsDisk()
    inventory = read_inventory(disk, paths(folder, *controllers.split()), paths(folder, *brokers.split()))
    return make_plan(disk, inventory, options)


def write_description(path: Path) -> None:
    """The description of a recovery of one voter, in a directory that holds nothing else."""
    path.mkdir()
    voter = DescribedVoter(id=1, directory_id=str(Uuid.ZERO), endpoint=None, dir="node-1")
    facts = Description(
        cluster_id="4L6g3nShT-eMCtK--X86sw",
        seed="/lost/c1",
        epoch=1,
        append_at=0,
        log_end=0,
        kraft_version=0,
        voters=(voter,),
        appended={},
        partition=METADATA_PARTITION,
        topics=0,
        accepted_strays=(),
        never_start_again=(),
    )
    (path / RECOVERY_FILE).write_bytes(encode(facts))
