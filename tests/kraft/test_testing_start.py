"""The first start of the fixture: what it loads, counted, and whether it gets by without what only Linux has."""

from __future__ import annotations

import subprocess
import sys

import pytest

MOST_MODULES = 440
"""So many of our own; 573 when nothing waited for its first use. Others, such as Trio's, depend on the Python.
There were 414 until the rooms of partitions, coordinators and parts became packages (decision 0104). Since then came
the keys of settings (decision 0105), the limits of the transport, the agenda (0107), the code in place of wheels
(0108), what a broker with and one without data share, the shape of all parts (0112), the throttles and quotas of
KIP-73 and KIP-599, and what an unknown key may mean,
and in six modules the rates of connections, the times of requests and topics with tiered storage: 450. The rooms of a
broker that few clients ask for wait for their first request since: 438, and two with what a follower is told of a log
that has moved to tiered storage.
"""
MOST_COMPILED = 6
"""Of 35 kinds of messages and records that a start reads or writes: most come once or twice."""
OURS = ("kraft", "metadata_log", "transport")
UNUSED = (
    *("kraft.admin", "kraft.client", "kraft.registry", "kraft.sim", "kraft.cli", "kraft.operate"),
    *("kraft.coordinators.groups", "kraft.coordinators.rooms", "kraft.coordinators.transactions.coordinator"),
    *("kraft.coordinators.transactions.shard", "kraft.coordinators.transactions.offset_commits"),
    *(
        "kraft.coordinators.runtime.partition",
        "metadata_log.records.coordinator",
        "kraft.partitions.log.cleaning.cleaner",
    ),
    *("kraft.controller.configs.incremental_configs", "kraft.controller.security.acls", "kraft.access.refusals"),
    *("kraft.state_machine.server", "kraft.node.state_machine_node", "kraft.testing.refusals"),
    *("transport.protocol.messages.join_group", "transport.protocol.messages.end_txn"),
    *("kraft.security.bearer_tokens", "kraft.security.remote"),
    *("kraft.broker.request.list_offsets", "kraft.broker.request.markers", "kraft.broker.request.directories"),
    *("kraft.broker.request.epoch_ends", "kraft.broker.request.delete_records", "kraft.broker.request.producers"),
    *("metadata_log.records.remote_storage", "transport.protocol.messages.describe_producers"),
    *("kraft.broker.metadata.configs", "kraft.broker.metadata.tokens", "kraft.broker.metadata.config_changes"),
    *(
        "kraft.node.loggers",
        "kraft.state_machine.machine",
        "kraft.testing.client_configs",
        "metadata_log.image.java_text",
    ),
    *("javaproperties", "cryptography", "http.client", "urllib.request", "click", "rich", "jsonschema", "pyarrow"),
)
"""What a start does without; each of it loads with its first use."""
COUNTED = """
import gc, linecache, sys
import kraft.testing.plugin
before, collected = set(sys.modules), sum(one["collections"] for one in gc.get_stats())
with kraft.testing.plugin.started({}) as kafka:
    found = set(sys.modules) - before
    print(sum(one["collections"] for one in gc.get_stats()) - collected, gc.isenabled())
    print(*found)
    print(sum(name.startswith("<codec: ") for name in linecache.cache))
"""
ELSEWHERE = """
import builtins, multiprocessing, os, select, signal, socket, ssl, subprocess, sys, tempfile, threading, types
import pytest, trio
import kraft.testing.plugin

system, absent, real = sys.argv[1], sys.argv[2].split(), builtins.__import__
def imported(name, globals=None, locals=None, fromlist=(), level=0):
    ours = str((globals or {}).get("__name__")).partition(".")[0] in ("kraft", "transport", "metadata_log")
    if ours and name.partition(".")[0] in absent:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return real(name, globals, locals, fromlist, level)
builtins.__import__ = imported
for module, names in (
    (os, "fork fdatasync O_DIRECTORY geteuid getuid O_CLOEXEC O_NONBLOCK O_NOCTTY sched_getaffinity pread pwrite"),
    (os, "posix_fadvise posix_fallocate statvfs killpg setsid eventfd fchmod uname"),
    (socket, "SO_REUSEPORT TCP_USER_TIMEOUT SO_INCOMING_CPU TCP_CORK TCP_QUICKACK"),
    (signal, "SIGHUP SIGUSR1 SIGUSR2 SIGKILL pthread_sigmask"),
):
    for name in names.split():
        module.__dict__.pop(name, None)
import transport.tcp
transport.tcp.select = types.SimpleNamespace()  # Trio itself needs that of this system
sys.platform = system
with kraft.testing.plugin.started({}) as kafka:
    kafka.create_topic("t")
    kafka.produce("t", ["a"])
    kafka.reset()
    kafka.produce("t", ["b"])
    print(*[record.value for record in kafka.consume("t")])
"""


def said(code: str, *arguments: str) -> list[str]:
    """What a new interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_first_start_loads_few_modules_and_looks_for_no_garbage() -> None:
    """A start in a new interpreter is imports by four fifths."""
    counted, named, compiled = said(COUNTED)
    collections, is_enabled = counted.split()
    found = set(named.split())
    assert not found & set(UNUSED)
    assert len([one for one in found if one.partition(".")[0] in OURS]) <= MOST_MODULES
    assert int(collections) <= 2
    assert int(compiled) <= MOST_COMPILED
    assert is_enabled == "True"


@pytest.mark.parametrize(
    ("system", "absent"),
    [("win32", "fcntl resource pwd grp termios tty pty syslog"), ("darwin", "spwd")],
)
def test_the_fixture_does_without_what_other_systems_lack(system: str, absent: str) -> None:
    """Simulated on this system: modules that are missing there cannot be imported, names are taken away."""
    assert said(ELSEWHERE, system, absent) == ["b'b'"]
