"""Two real Patroni, each with a PostgreSQL, that agree by a quorum of three nodes: two in them, and one beside."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from store_quorums import prepare, running
from support import ROOT
from support.eventually import eventually
from support.left_out import leave_out
from support.loopback import free_ports

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
TTL = 20
"""Seconds: the least that Patroni allows."""


def as_postgres() -> list[str]:
    """PostgreSQL does not run as root: then as the user of its package, which may read our files nevertheless."""
    if os.geteuid():
        return []
    rights = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    return ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups", *rights]


class Member:
    """A Patroni with its PostgreSQL, and with a node of the store."""

    def __init__(self, name: str, folder: Path, node: Path) -> None:
        self.name = name
        self.folder = folder
        self.api, self.port = free_ports(2)
        self.config = folder / f"{name}.json"
        self.process: subprocess.Popen[bytes] | None = None
        self.config.write_text(
            json.dumps(
                {
                    "scope": "demo",
                    "name": name,
                    "restapi": {"listen": f"127.0.0.1:{self.api}", "connect_address": f"127.0.0.1:{self.api}"},
                    "kraft": {"url": f"kraft://{node}"},
                    "bootstrap": {
                        "dcs": {"ttl": TTL, "loop_wait": 1, "retry_timeout": 4, "maximum_lag_on_failover": 1048576},
                        "initdb": ["data-checksums", {"encoding": "UTF8"}],
                    },
                    "postgresql": {
                        "listen": f"127.0.0.1:{self.port}",
                        "connect_address": f"127.0.0.1:{self.port}",
                        "data_dir": str(folder / f"data-{name}"),
                        "bin_dir": str(BINARIES[-1]),
                        "pgpass": str(folder / f"pgpass-{name}"),
                        "pg_hba": ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"],
                        "authentication": {
                            "superuser": {"username": "postgres", "password": "p"},
                            "replication": {"username": "replicator", "password": "r"},
                        },
                        "parameters": {"unix_socket_directories": str(folder), "fsync": "on"},
                    },
                }
            )
        )

    def start(self) -> None:
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*as_postgres(), sys.executable, "-m", "kraft.adapters.patroni", str(self.config)],
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """`kill -9` of Patroni and of its PostgreSQL."""
        assert self.process is not None
        postmaster = self.folder / f"data-{self.name}" / "postmaster.pid"
        pids = [int(postmaster.read_text().splitlines()[0])] if postmaster.exists() else []
        self.process.kill()
        self.process.wait()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.process = None

    def status(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.api}/patroni", timeout=2) as answer:
                return dict(json.load(answer))
        except OSError:
            return {}

    def is_(self, role: str) -> bool:
        status = self.status()
        return status.get("role") == role and status.get("state") == "running"

    def streams(self) -> bool:
        return self.is_("replica") and self.status().get("replication_state") == "streaming"

    def sql(self, statement: str) -> str:
        command = [
            str(BINARIES[-1] / "psql"),
            "-X",
            "-A",
            "-t",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-U",
            "postgres",
        ]
        done = subprocess.run([*command, "-c", statement], capture_output=True, text=True, check=True)
        return done.stdout.strip()


@contextmanager
def two_members() -> Iterator[tuple[Member, Member]]:
    # Not in the folder of pytest, which its owner alone may enter.
    folder = Path(tempfile.mkdtemp(prefix="kraft-patroni-"))
    try:
        files = prepare(folder, 3)
        if not os.geteuid():
            for path in (folder, *folder.rglob("*")):
                shutil.chown(path, "postgres", "postgres")
        with running(files[2:]):
            members = Member("a", folder, files[0]), Member("b", folder, files[1])
            try:
                yield members
            except BaseException:
                for path in sorted(folder.glob("*.log")):
                    print(path.name, path.read_text()[-6000:], sep="\n")
                raise
            finally:
                for member in members:
                    if member.process is not None:
                        member.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.soak
def test_two_postgres_fail_over() -> None:
    if not BINARIES:
        leave_out("postgresql", "PostgreSQL is not installed: apt-get install postgresql")
    with two_members() as (first, second):
        first.start()
        second.start()
        eventually(lambda: first.is_("primary") or second.is_("primary"), "a primary", 120)
        old, new = (first, second) if first.is_("primary") else (second, first)
        eventually(new.streams, "a replica", 120)
        old.sql("create table t (n int)")
        for number in range(20):
            old.sql(f"insert into t values ({number})")
        eventually(lambda: new.sql("select count(*) from t") == "20", "the rows are replicated")
        # One of three nodes of the store dies with it.
        old.kill()
        eventually(lambda: new.is_("primary"), "the replica takes over", 3 * TTL)
        new.sql("insert into t values (20)")
        assert new.sql("select count(*), max(n) from t") == "21|20"
        old.start()
        eventually(old.streams, "the former primary follows", 120)
        eventually(lambda: old.sql("select count(*) from t") == "21", "the rows are replicated again")
        # Back again, as an operator asks for it.
        command = [
            sys.executable,
            "-m",
            "kraft.adapters.patroni",
            "ctl",
            "-c",
            str(_for_ctl(new)),
            "switchover",
            "demo",
        ]
        asked = ["--primary", new.name, "--candidate", old.name, "--force"]
        done = subprocess.run(
            [*command, *asked], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        eventually(lambda: old.is_("primary"), "the switch-over", 120)
        eventually(new.streams, "the other one follows", 120)
        assert old.sql("select count(*) from t") == "21"


def _for_ctl(member: Member) -> Path:
    """The configuration for `patronictl`, which is a client of the store: the member's node runs already."""
    config = json.loads(member.config.read_text())
    properties = Path(config["kraft"]["url"].removeprefix("kraft://")).read_text()
    (servers,) = (line for line in properties.splitlines() if line.startswith("controller.quorum.bootstrap.servers="))
    config["kraft"]["url"] = f"kraft://{servers.partition('=')[2]}"
    path = member.folder / "ctl.json"
    path.write_text(json.dumps(config))
    return path
