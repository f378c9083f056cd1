"""A standalone cluster of Spark on this machine, and the processes below one of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.interop.real_kafka import Process
from support.spark.spark_processes import spark_class

_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
_PLACE = ("--host", "127.0.0.1", "--webui-port", "0")


@contextmanager
def standalone(
    where: Path, workers: int, *, cores: int = 2, home: Path | None = None
) -> Iterator[tuple[str, list[Process]]]:
    """A master with some workers while the block lasts: its URL, and the workers; `home` is their Spark."""
    with ExitStack() as stack:
        master = stack.enter_context(spark_class(_MASTER, *_PLACE, "--port", "0", log=where / "master.log", home=home))
        found = re.search(r"spark://127\.0\.0\.1:\d+", master.wait_for(r"Starting Spark master at spark://"))
        assert found is not None
        started = []
        for number in range(workers):
            work = ("--cores", str(cores), "--memory", "1g", "--work-dir", str(where / f"work{number}"))
            log = where / f"worker{number}.log"
            started.append(stack.enter_context(spark_class(_WORKER, *_PLACE, *work, found[0], log=log, home=home)))
        for worker in started:
            worker.wait_for("Successfully registered with master")
        yield found[0], started


def executors(workers: list[Process]) -> list[int]:
    """The processes of executors below some workers."""
    parents = {worker.popen.pid for worker in workers}
    found = []
    for entry in sorted(Path("/proc").iterdir(), key=lambda path: path.name):
        if entry.name.isdecimal() and entry.name != str(os.getpid()):
            try:
                state, command = (entry / "stat").read_text(), (entry / "cmdline").read_bytes()
            except OSError:
                continue
            parent = int(state.rpartition(")")[2].split()[1])
            if parent in parents and b"CoarseGrainedExecutorBackend" in command:
                found.append(int(entry.name))
    return found
