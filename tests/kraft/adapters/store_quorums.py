"""Quorums of stores over real files and TCP. Their voters can change, so that clients may come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import kraft.sync
from kraft.config import Config
from metadata_log.disk import OsDisk
from metadata_log.log.log_dir import format_directory
from metadata_log.records.control import Endpoint, KRaftVersionFeature, VotersRecord, VotersRecordVoter
from metadata_log.types import random_uuid
from support.loopback import free_ports

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def prepare(folder: Path, nodes: int) -> list[Path]:
    """The properties files of so many voters, with formatted directories."""
    rng = Random(7)
    ports = free_ports(nodes)
    servers = ",".join(f"127.0.0.1:{port}" for port in ports)
    voters = VotersRecord(
        voters=tuple(
            VotersRecordVoter(
                voter_id=node_id,
                voter_directory_id=random_uuid(rng),
                endpoints=(Endpoint(name="CONTROLLER", host="127.0.0.1", port=port),),
                kraft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
            )
            for node_id, port in enumerate(ports, 1)
        )
    )
    files = []
    for node_id, port in enumerate(ports, 1):
        directory = folder / f"node-{node_id}"
        path = folder / f"c{node_id}.properties"
        path.write_text(
            f"process.roles=controller\nnode.id={node_id}\ncontroller.quorum.bootstrap.servers={servers}\n"
            f"controller.listener.names=CONTROLLER\nlisteners=CONTROLLER://127.0.0.1:{port}\nlog.dirs={directory}\n"
            "controller.quorum.append.linger.ms=0\n"
            + ("controller.quorum.election.timeout.ms=50\n" if nodes == 1 else "")
        )
        format_directory(
            OsDisk(),
            str(directory),
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            rng=rng,
            now_ms=1,
            dynamic=True,
            initial_voters=voters,
        )
        files.append(path)
    return files


def client_url(files: Sequence[Path]) -> str:
    """The URL with which a client finds these nodes."""
    servers = Config.load(str(files[0])).bootstrap_servers
    return f"kraft://{','.join(f'{host}:{port}' for host, port in servers)}"


@contextmanager
def running(files: Sequence[Path]) -> Iterator[list[kraft.sync.Store]]:
    """Run all nodes in this process, each in a thread of its own."""
    with ExitStack() as stack:
        yield [stack.enter_context(kraft.sync.open_store(Config.load(str(path)))) for path in files]
