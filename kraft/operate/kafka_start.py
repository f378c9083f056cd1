"""Starts one controller of Apache Kafka on a copy of a directory, and watches the copy's files. No request is sent.

The controller listens on a port of the loopback address that no other node knows, and is the only voter.
"""

from __future__ import annotations

import os
import socket
import subprocess
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from kraft.operate.isolated_start import IsolatedNode, Started, copy_tree
from metadata_log.disk import OsDisk
from metadata_log.errors import DirectoryError, MetadataLogError
from metadata_log.log.log_dir import PARTITION_DIRECTORY
from metadata_log.log.quorum_state_file import read_quorum_state
from metadata_log.reading.log_end import find_log_end
from metadata_log.reading.replay_log import replay
from transport.causes import one_cause

MAIN_CLASS: Final = "kafka.Kafka"
NEW_RECORDS: Final = 4
"""An active controller has written so many records: its election, its registration, and NoOp records."""
_LOOK_SECONDS: Final = 0.2
_LAST_LINES: Final = 5


def start_kafka(java: str, jars: str, node: IsolatedNode, *, dynamic: bool, log_end: int, seconds: float) -> Started:
    """Start the only voter of a quorum as a controller of Apache Kafka, on a copy, until it has written records.

    Args:
        java: The path of the Java program.
        jars: The directory of Kafka's jars.
        node: The controller. Its address is replaced by one of the loopback interface.
        dynamic: Whether the voters are in the log.
        log_end: The end of the log before the start.
        seconds: The time limit.

    Returns:
        The epoch of the leader, and the image at the end of the log that it has written.

    Raises:
        DirectoryError: The controller ended, or did not lead in time; with the last lines that it printed.
        OSError: Java cannot be started.
    """
    with TemporaryDirectory(prefix="kraft-verify-") as below:
        copy = f"{below}/node-{node.id}"
        copy_tree(OsDisk(), node.directory, copy)
        properties = Path(below, "controller.properties")
        properties.write_text(_properties(node, copy, _free_port(), dynamic=dynamic))
        command = [java, "-Xmx512m", "-cp", f"{jars}/*", MAIN_CLASS, str(properties)]
        output = Path(below, "output")
        if trio.run(_run, command, copy, output, log_end, seconds):
            return _result(node, copy, log_end)
        printed = " | ".join(output.read_text(errors="replace").splitlines()[-_LAST_LINES:])
        raise DirectoryError(
            f"Apache Kafka's controller {node.id} did not lead within {seconds:g} s; its last lines: {printed}",
            where=node.directory,
            hint="Do not start a controller on this directory. Check it with `kraft recover verify --offline`.",
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _properties(node: IsolatedNode, copy: str, port: int, *, dynamic: bool) -> str:
    quorum = (
        f"controller.quorum.bootstrap.servers=127.0.0.1:{port}"
        if dynamic
        else f"controller.quorum.voters={node.id}@127.0.0.1:{port}"
    )
    lines = (
        "process.roles=controller",
        f"node.id={node.id}",
        f"log.dirs={copy}",
        f"controller.listener.names={node.listener}",
        f"listener.security.protocol.map={node.listener}:PLAINTEXT",
        f"listeners={node.listener}://127.0.0.1:{port}",
        quorum,
    )
    return "".join(f"{line}\n" for line in lines)


async def _run(command: list[str], copy: str, output: Path, log_end: int, seconds: float) -> bool:
    """Run the controller until it has written records, or has ended, or time is up; returns whether it has written."""
    has_led = False
    with one_cause(), output.open("wb") as file:
        async with trio.open_nursery() as nursery:
            run = partial(
                trio.run_process, command, stdout=file, stderr=subprocess.STDOUT, check=False, cwd=os.path.dirname(copy)
            )
            process: trio.Process = await nursery.start(run)
            with trio.move_on_after(seconds):
                while process.returncode is None and not has_led:
                    end = find_log_end(OsDisk(), f"{copy}/{PARTITION_DIRECTORY}")
                    has_led = end.offset >= log_end + NEW_RECORDS
                    await trio.sleep(_LOOK_SECONDS)
            nursery.cancel_scope.cancel()
    return has_led


def _result(node: IsolatedNode, copy: str, log_end: int) -> Started:
    partition = f"{copy}/{PARTITION_DIRECTORY}"
    state = read_quorum_state(OsDisk(), partition)
    if state is None:
        raise MetadataLogError("the controller has left no quorum-state", where=partition)
    return Started(leader_id=node.id, epoch=state.leader_epoch, log_end=log_end, image=replay(copy))
