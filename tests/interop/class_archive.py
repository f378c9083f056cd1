"""What a JVM has made of Kafka's classes, kept for its next start (JEP 350): it starts in half the time."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import tempfile
import threading
from pathlib import Path

from loopback import free_ports

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
STARTED = "Kafka Server started"
SECONDS = 120


def ensure_archive(java: str, jars: Path, options: tuple[str, ...]) -> Path | None:
    """The archive for this Java and these jars, made once; None where this Java makes none.

    It takes a few seconds to make: a controller starts and stops. Nothing that was archived for another Java is used.
    """
    archive = jars.parent / f"{jars.name}-{_identity(java, jars, options)}.jsa"
    with (jars.parent / f"{jars.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            with tempfile.TemporaryDirectory(dir=jars.parent, prefix="archive-") as scratch:
                made = Path(scratch) / "classes.jsa"
                if not _make(java, jars, options, made):
                    made.write_bytes(b"")
                made.rename(archive)
    return archive if archive.stat().st_size else None


def _identity(java: str, jars: Path, options: tuple[str, ...]) -> str:
    """What an archive is good for, in a few letters."""
    found = Path(java).resolve()
    about = str(found), found.stat().st_mtime_ns, jars.stat().st_mtime_ns, options
    return hashlib.sha256(repr(about).encode()).hexdigest()[:12]


def _make(java: str, jars: Path, options: tuple[str, ...], archive: Path) -> bool:
    """Start a controller, and have what it has loaded written down when it stops; whether that worked."""
    directory = archive.parent
    (port,) = free_ports(1)
    config = directory / "controller.properties"
    config.write_text(
        "process.roles=controller\n"
        "node.id=1\n"
        f"log.dirs={directory / 'log'}\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT\n"
        f"listeners=CONTROLLER://127.0.0.1:{port}\n"
        f"controller.quorum.voters=1@127.0.0.1:{port}\n"
    )
    run = [java, *options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "-cp", f"{jars}/*"]
    formatting = [*run, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)]
    if subprocess.run(formatting, capture_output=True, timeout=SECONDS, check=False).returncode != 0:
        return False
    serving = [*run[:1], f"-XX:ArchiveClassesAtExit={archive}", *run[1:], "kafka.Kafka", str(config)]
    with subprocess.Popen(serving, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as controller:
        assert controller.stdout is not None
        patience = threading.Timer(SECONDS, controller.kill)
        patience.start()
        has_started = any(STARTED in line for line in controller.stdout)
        controller.terminate()
        controller.stdout.read()
        patience.cancel()
    return has_started and archive.exists() and os.access(archive, os.R_OK)
