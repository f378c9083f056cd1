"""Ctrl-C ends every command quietly, at whatever moment it comes."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryFile

import pytest
from msgspec import Struct

from kraft.cli.main import main
from support.kraft.cli_serving import COMMANDS
from support.kraft.command_line import CLUSTER_ID, write_config
from support.kraft.recovery_data import write_description
from support.loopback import free_ports
from support.real_data import unpack

KRAFT = Path(__file__).parents[3] / "kraft"
PATIENCE_SECONDS = 90
CONTROLLER = "--bootstrap-controller SILENT --timeout 60"
BROKER = "--bootstrap-server SILENT"
LINES = tuple(
    line.strip()
    for line in f"""
    acls add --principal User:a --topic t --operation read {CONTROLLER}
    acls list {CONTROLLER}
    acls remove --principal User:a {CONTROLLER}
    archive --to OUT --from NODE
    archive --to OUT --from SILENT --timeout 60
    archive --to OUT --from NODE --follow
    brokers describe 1 {CONTROLLER}
    brokers list {CONTROLLER}
    brokers unregister 1 {CONTROLLER}
    check NODE --json
    completion bash
    configs append topic t a=b {CONTROLLER}
    configs delete topic t a {CONTROLLER}
    configs describe topic t {CONTROLLER}
    configs set topic t a=b {CONTROLLER}
    configs subtract topic t a=b {CONTROLLER}
    consume t --follow {BROKER}
    decode --batch
    diff NODE NODE
    doctor collect NODE --into OUT/bundle.tar.gz
    doctor examine NODE
    doctor examine {CONTROLLER}
    doctor explain
    dump NODE --records --noop
    dump NODE --hex
    elect preferred --all {CONTROLLER}
    environment
    features describe {CONTROLLER}
    features downgrade --feature metadata.version=4.0-IV0 {CONTROLLER}
    features upgrade --release-version 4.3 {CONTROLLER}
    format --cluster-id CLUSTER -c CONFIG
    groups delete g {BROKER}
    groups delete-offsets g --topic t {BROKER}
    groups describe g {BROKER}
    groups list {BROKER}
    groups reset g --all-topics --to-earliest {BROKER}
    history NODE
    history NODE --json
    man --into OUT
    mock --port 0
    produce t {BROKER}
    quickstart --controllers 1 --brokers 1
    quorum add 1 {CONTROLLER}
    quorum remove 1 {CONTROLLER}
    quorum replication {CONTROLLER}
    quorum status {CONTROLLER}
    quorum status --watch {CONTROLLER}
    quorum unregister 1 {CONTROLLER}
    quorum upgrade {CONTROLLER}
    random-uuid
    reassign cancel --topic t {CONTROLLER}
    reassign list {CONTROLLER}
    reassign plan --topic t --to 1,2 {CONTROLLER}
    reassign start --topic-partition t:0 --to 1 {CONTROLLER}
    reassign unthrottle {CONTROLLER}
    recover plan NODE
    registry --port 0 {BROKER}
    recover unblock-ghost 7 {CONTROLLER}
    recover verify RECOVERED --bootstrap-controller SILENT
    replay NODE --all
    replay NODE --json
    serve FORMATTED
    shell NODE find /image
    sim explore
    sim mutants
    sim run --seeds 0..9999 --members core
    sim run --seeds 0..9999 --members core --jobs 2
    top --once {CONTROLLER}
    topics create t {CONTROLLER}
    topics delete t {CONTROLLER}
    topics describe t {CONTROLLER}
    topics grow t --partitions 9 {CONTROLLER}
    topics list {CONTROLLER}
    topics list --bootstrap-server SILENT --timeout 60
    transactions abort --topic t --partition 0 --start-offset 0 {BROKER}
    transactions describe x {BROKER}
    transactions describe-producers --topic t --partition 0 {BROKER}
    transactions find-hanging --broker 1 {BROKER}
    transactions list {BROKER}
    users delete u {CONTROLLER}
    users list {CONTROLLER}
    users set u --password-file PASSWORD {CONTROLLER}
    watch {CONTROLLER}
    whatif NODE --fail 1
    """.splitlines()
    if line.strip()
)
ELSEWHERE = {
    "recover apply": "test_progress_of_commands.py, with the plan of another command",
    "sim replay": "test_progress_of_commands.py, with a schedule that takes long",
}
"""Commands that are tried in another file. Those of `fleet` are tried where Spark is."""


class Place(Struct, frozen=True):
    """The values of the words in capitals of `LINES`."""

    root: Path
    silent: str

    def words(self, line: str, number: int) -> list[str]:
        """The arguments of a command that has a directory of its own to write to."""
        out = self.root / f"out-{number}"
        for one in (out, self.root / f"config-{number}"):
            one.mkdir(exist_ok=True)
        stands = {
            "SILENT": self.silent,
            "NODE": str(self.root / "node"),
            "OUT": str(out),
            "CONFIG": str(write_config(self.root / f"config-{number}", port=1)),
            "FORMATTED": str(self.root / "served" / "node.properties"),
            "CLUSTER": CLUSTER_ID,
            "PASSWORD": str(self.root / "password"),
            "RECOVERED": str(self.root / "recovered"),
        }
        for name, value in stands.items():
            line = re.sub(rf"\b{name}\b", value, line)
        return line.split()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A node's directory, and a listener that accepts connections and never answers."""
    root = tmp_path_factory.mktemp("ctrl-c")
    unpack("static3", "nodes/c1", root / "node")
    (root / "password").write_text("secret\n")
    (root / "served").mkdir()
    served = write_config(root / "served", port=free_ports(1)[0])
    with pytest.raises(SystemExit):
        main(["format", "-c", str(served), "--cluster-id", CLUSTER_ID])
    write_description(root / "recovered")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kept = []

        def accept() -> None:
            with suppress(OSError):
                while True:
                    kept.append(listener.accept())

        threading.Thread(target=accept, daemon=True).start()
        yield Place(root, f"127.0.0.1:{listener.getsockname()[1]}")
        listener.shutdown(socket.SHUT_RDWR)


PROGRAM = """
import os, sys
from kraft.__main__ import main
os.close(int(sys.argv.pop(1)))
main()
"""
"""A command that closes a pipe when Python has come to its first line."""
BEFORE = re.compile(r"Traceback .*\n  File \"<string>\", line \d+, in <module>\nKeyboardInterrupt\n")
"""That line was not reached yet: no program can change what Python prints then."""
NOISE = re.compile(r"Traceback|Exception|Warning|Error:|^\s+File ", re.MULTILINE)
"""Not `kraft: error:`: a command may have said why it fails a moment before the signal comes."""


def interrupted(words: list[str], after: float) -> tuple[int, str] | None:
    """The exit code and the stderr of a command that got Ctrl-C so many seconds after its start; None if it had ended.

    The signal goes to all processes of the command, as from a terminal.
    """
    read, write = os.pipe()
    with TemporaryFile() as said, open(read, "rb") as started:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(write), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=said,
            pass_fds=[write],
            start_new_session=True,
        )
        os.close(write)
        started.read()
        with suppress(subprocess.TimeoutExpired):
            process.wait(after)
            return None
        os.killpg(process.pid, signal.SIGINT)
        try:
            code = process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        said.seek(0)
        return code, said.read().decode()


def check(place: Place, seed: int) -> str:
    """Interrupt a command at a moment that is drawn; returns what was noisy."""
    random = Random(seed)
    line, after = random.choice(LINES), 3 * random.random() ** 3
    print(f"seed {seed}: kraft {line}, after {after:.3f} s")
    ended = interrupted(place.words(line, seed), after)
    if ended is None or (ended[0] in {0, 130, -signal.SIGINT} and not NOISE.search(BEFORE.sub("", ended[1]))):
        return ""
    return f"seed {seed}: kraft {line}, after {after:.3f} s: exit code {ended[0]}\n{ended[1]}"


@pytest.mark.parametrize("seed", range(50))
def test_some_commands_end_quietly_at_ctrl_c(place: Place, seed: int) -> None:
    assert check(place, seed) == ""


@pytest.mark.soak
def test_each_command_ends_quietly_at_ctrl_c_under_load(place: Place) -> None:
    """Two hundred times, beside a busy process for each core."""
    with ExitStack() as stack:
        for _ in range(len(os.sched_getaffinity(0))):
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(busy.kill)
        noisy = [text for seed in range(200) if (text := check(place, seed))]
    assert "\n".join(noisy) == ""


SWALLOWED = """
import signal, sys, time, weakref
import kraft.cli.main
from kraft.__main__ import main

class Thing: ...

def command():
    thing = Thing()
    reference = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
    del thing
    time.sleep(60)

kraft.cli.main.main = command
main()
"""
PENDING = """
import os, signal
real = signal.signal

def signal_before_it(number, action):
    if action is signal.SIG_DFL:
        os.kill(os.getpid(), number)
    return real(number, action)

signal.signal = signal_before_it
from kraft.__main__ import main
main()
"""


@pytest.mark.parametrize(("program", "code"), [(SWALLOWED, 130), (PENDING, -signal.SIGINT)])
def test_an_interrupt_that_python_would_drop_ends_the_command(program: str, code: int) -> None:
    """KeyboardInterrupt in a callback goes nowhere, and a signal that comes while its action changes is forgotten."""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_each_command_is_tried_or_said_to_be_tried_elsewhere() -> None:
    leaves = {one for one in COMMANDS if not any(other.startswith(f"{one} ") for other in COMMANDS)}
    tried = {one for one in leaves if any(f"{line} ".startswith(f"{one} ") for line in LINES)}
    assert leaves - tried == {*ELSEWHERE, *(one for one in leaves if one.startswith("fleet "))}


def test_each_command_runs_its_tasks_so_that_ctrl_c_cancels_them() -> None:
    below = [path for folder in ("cli", "operate") for path in (KRAFT / folder).rglob("*.py")]
    assert [path.stem for path in below if "trio.run(" in path.read_text()] == ["interrupts"]
