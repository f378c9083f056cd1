"""Forks `kraft` commands from one process that has loaded the package: a node starts in a tenth of the CPU time.

Reads one JSON object a line on stdin: {"id": N, "args": ["serve", "-c", "x.properties"], "log": "file"} starts a child,
{"kill": PID, "signal": N} signals one. {"principals": {"CLIENT": "User:client"}} beside the arguments says who a peer
of a listener is: it stands in for a test's principal builder, which is a plug-in in Java. Writes lines on stdout:
`pid N PID`, `exit PID STATUS`. At end of file it kills what is left: no node outlives the tests.
"""

import gc
import json
import os
import pkgutil
import selectors
import signal
import sys
from importlib import import_module
from typing import Any

from transport.protocol.inbound import Principal
from transport.protocol.server_connection import ServerConnection

for module in ("kraft.__main__", "kraft.cli.main"):
    import_module(module)
from kraft.cli.main import COMMANDS  # noqa: E402
from kraft.cli.main import main as command  # noqa: E402

for name in ("format", "serve"):
    import_module(COMMANDS[name].module)
for name in ("kraft.node", "kraft.broker", "kraft.controller", "kraft.coordinators", "kraft.partitions", "transport"):
    # A node would import the most of these: a third of the time that its start takes.
    for found in pkgutil.walk_packages(import_module(name).__path__, f"{name}."):
        if ".messages." not in found.name:
            import_module(found.name)
for module in sys.argv[1:]:
    import_module(module)
gc.collect()
gc.freeze()

children: set[int] = set()
reader, writer = os.pipe()
os.set_blocking(writer, False)


def with_principals(names: dict[str, str]) -> None:
    begin = ServerConnection.__init__

    def begin_as(self: ServerConnection, **rest: Any) -> None:
        begin(self, **rest)
        if rest["listener"] in names:
            kind, name = names[rest["listener"]].split(":")
            self.principal = Principal(kind, name)

    ServerConnection.__init__ = begin_as  # type: ignore[method-assign]


def start(request: dict[str, Any]) -> None:
    pid = os.fork()
    if pid:
        children.add(pid)
        print("pid", request["id"], pid, flush=True)
        return
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.closerange(3, 64)
        sys.argv = ["kraft", *request["args"]]
        with_principals(request.get("principals", {}))
        try:
            command()
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def reap() -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        children.discard(pid)
        print("exit", pid, os.waitstatus_to_exitcode(status), flush=True)


signal.signal(signal.SIGCHLD, lambda *_: None)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
signal.set_wakeup_fd(writer)
selector = selectors.DefaultSelector()
selector.register(0, selectors.EVENT_READ)
selector.register(reader, selectors.EVENT_READ)
pending = b""
is_open = True
try:
    while is_open:
        for key, _ in selector.select():
            data = os.read(key.fd, 65536)
            if key.fd == reader:
                reap()
                continue
            if not data:
                is_open = False
                break
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                request = json.loads(line)
                if "kill" in request:
                    if request["kill"] in children:
                        os.kill(request["kill"], request["signal"])
                else:
                    start(request)
finally:
    for pid in children:
        os.kill(pid, signal.SIGKILL)
