"""`kraft top` on a real quorum: the screen in 80 columns, its keys, plain text, JSON, and a leader that dies."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from support.eventually import eventually
from support.kraft.command_line import run
from support.kraft.live_quorum import CLUSTER_ID, LiveQuorum, live_quorum
from support.loopback import free_ports

pytest.importorskip("textual")

from textual.pilot import Pilot

from kraft.cli.cluster.administration import Cluster
from kraft.cli.cluster.top_screen import TopScreen
from kraft.cli.cluster.top_thread import PollThread
from kraft.operate.top.layout import Settings
from kraft.operate.top.poll import LIVE_TIMEOUT_MS
from kraft.operate.top.samples import Sample
from support.kraft.screens import picture, text_of, until
from support.kraft.top_samples import SILENT, sample
from transport.interface import Endpoint

SIZE = (80, 24)
DEFAULT_OF_PICTURES = ("c5", "c8", "c6")
"""The colour that pictures give to text without a colour."""


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveQuorum]:
    with live_quorum(tmp_path_factory.mktemp("quorum")) as found:
        yield found


def screen_of(quorum: LiveQuorum) -> TopScreen:
    listeners = tuple(Endpoint("127.0.0.1", port) for port in quorum.metrics.values())
    cluster = Cluster(quorum.endpoints, LIVE_TIMEOUT_MS, as_json=False)
    return TopScreen(PollThread(cluster, listeners, 0.3), Settings(interval_s=0.3))


def test_one_screen_as_text_and_as_json(quorum: LiveQuorum, capsys: pytest.CaptureFixture[str]) -> None:
    address = ",".join(map(str, quorum.endpoints))
    metrics = ",".join(f"127.0.0.1:{port}" for port in quorum.metrics.values())
    leader = quorum.leader()
    done = run(capsys, "top", "--bootstrap-controller", address, "--json", "--metrics", metrics)
    found = json.loads(done.out)
    assert (done.code, done.err) == (0, "")
    assert (found["clusterId"], found["leaderId"], found["voters"]) == (CLUSTER_ID, leader, 3)
    assert {one["id"]: one["role"] for one in found["replicas"] if one["role"] != "observer"} == {
        one: "leader" if one == leader else "follower" for one in (1, 2, 3)
    }
    assert all(one["fsyncMs"] is not None for one in found["replicas"] if one["role"] != "observer")
    assert {one["nodeId"] for one in found["metrics"]} == {1, 2, 3}
    piped = run(capsys, "top", "--bootstrap-controller", address)
    assert (piped.code, piped.err) == (0, "")
    title, state, *_ = piped.out.splitlines()
    assert title.startswith(f"kraft top  cluster {CLUSTER_ID} ")
    assert state.startswith(f"leader {leader}  epoch {found['leaderEpoch']}  high watermark ")
    assert "\x1b" not in piped.out
    dead = run(capsys, "top", "--once", "--bootstrap-controller", f"127.0.0.1:{free_ports(1)[0]}", "--timeout", "0.3")
    assert (dead.code, dead.err) == (1, "")
    assert "NO LEADER  0 elections" in dead.out
    assert "0 of 1 known controllers answer." in dead.out
    wrong = run(capsys, "top", "--once", "--bootstrap-controller", address, "--metrics", "x")
    assert (wrong.code, "--metrics" in wrong.err, "For example 127.0.0.1:9404" in wrong.err) == (2, True, True)


def test_the_screen_follows_a_quorum_with_fenced_brokers_and_a_dying_leader(quorum: LiveQuorum) -> None:
    app = screen_of(quorum)

    async def story() -> None:
        async with app.run_test(size=SIZE) as pilot:
            await until(pilot, app, lambda text: "brokers 2 (0 not active)" in text, "two brokers are active")
            await asyncio.to_thread(lambda: quorum.create_topic("orders", 4, **{"min.insync.replicas": "2"}))
            healthy = await until(pilot, app, lambda text: "partitions 4 (0 no leader" in text, "the topic is there")
            assert re.search(r"TURN\n", healthy), "the metrics listeners answer"
            await _look(pilot, app, "healthy")
            await _keys(pilot, app)

            quorum.kill(102)
            below = ("4 below min ISR", "102  fenced", "orders-0   below min ISR of 2  101")  # two widgets, one by one
            await until(pilot, app, lambda text: all(part in text for part in below), "a dead broker leaves the ISR")
            quorum.kill(101)
            await until(pilot, app, lambda text: "(4 no leader, 0 below min ISR)" in text, "no partition has a leader")

            dead = await asyncio.to_thread(quorum.leader)
            quorum.kill(dead)
            elected = re.compile(
                rf"^leader (?!{dead} ).* [1-9]\d* elections? since"
                rf".* {dead}  follower +- +- +-  +never.*: Connection refused",
                re.MULTILINE | re.DOTALL,
            )
            await until(
                pilot,
                app,
                lambda text: bool(elected.search(text)),
                "another leader is elected, and the listener of the dead one is gone",
            )
            await _look(pilot, app, "sick")
            left = sorted({1, 2, 3} - {dead})
            quorum.kill(left[0])
            lost = (
                "1 of 3 known controllers answer",
                "NO LEADER for",
                "2 of 3 voters make a majority",
                "Connection refused",
                "orders-0",  # what was known of partitions stays
            )
            await until(pilot, app, lambda text: all(part in text for part in lost), "no majority is left")
            await _look(pilot, app, "no-leader")
            await pilot.press("q")
        assert app.return_value == 0

    asyncio.run(story())


async def _look(pilot: Pilot[int | Exception], app: TopScreen, name: str) -> None:
    await pilot.pause()
    text = text_of(picture(app, name))
    assert max(map(len, text.splitlines())) <= SIZE[0]
    assert "q Quit" in text


async def _keys(pilot: Pilot[int | Exception], app: TopScreen) -> None:
    await pilot.press("p")
    assert "PAUSED" in await until(pilot, app, lambda text: "PAUSED" in text, "the screen pauses")
    await pilot.press("p", "s")
    await until(pilot, app, lambda text: "by lag" in text and "every 0.3 s" in text, "the order is by lag")
    await pilot.press("s", "s", "r")
    await until(pilot, app, lambda text: "by " not in text.splitlines()[0], "the order is by id again")


class _Recorded:
    """Polls that give some samples at once."""

    def __init__(self, *samples: Sample) -> None:
        self.samples = samples
        self.calls: list[str] = []

    def start(self, on_sample: Callable[[Sample], None], on_failure: Callable[[Exception], None]) -> None:
        self.calls.append("start")
        for one in self.samples:
            on_sample(one)
        if not self.samples:
            on_failure(ValueError("the first answer"))

    def pause(self, is_paused: bool) -> None:
        self.calls.append(f"pause {is_paused}")

    def refresh(self) -> None:
        self.calls.append("refresh")

    def stop(self) -> None:
        self.calls.append("stop")


@pytest.mark.parametrize("width", [40, 80, 132])
def test_each_width_shows_the_head_and_the_keys(width: int) -> None:
    polls = _Recorded(sample(), sample(3.0, SILENT))
    app = TopScreen(polls, Settings(interval_s=1.0))

    async def story() -> None:
        async with app.run_test(size=(width, 24)) as pilot:
            text = await until(pilot, app, lambda text: "NO LEADER" in text, "the samples are shown")
            assert max(map(len, text.splitlines())) <= width
            await pilot.press("r", "p", "ctrl+c")
        assert app.return_value == 130
        assert polls.calls == ["start", "refresh", "pause True", "stop"]

    asyncio.run(story())


def test_a_failure_of_the_polls_ends_the_screen() -> None:
    app = TopScreen(_Recorded(), Settings(interval_s=1.0))

    async def story() -> None:
        async with app.run_test(size=SIZE) as pilot:
            await pilot.pause()

    asyncio.run(story())
    assert isinstance(app.return_value, ValueError)


@pytest.mark.parametrize("is_grey", [False, True])
def test_no_color_leaves_greys_and_every_word(monkeypatch: pytest.MonkeyPatch, is_grey: bool) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if is_grey:
        monkeypatch.setenv("NO_COLOR", "1")
    app = TopScreen(_Recorded(sample()), Settings(interval_s=1.0))

    async def story() -> str:
        async with app.run_test(size=SIZE) as pilot:
            await until(pilot, app, lambda text: "fenced" in text, "the sample is shown")
            return app.export_screenshot()

    svg = asyncio.run(story())
    painted = set(re.findall(r"\.terminal-\d+-r\d+ \{ fill: #(..)(..)(..)", svg)) - {DEFAULT_OF_PICTURES}
    assert painted
    assert any(len(set(colour)) > 1 for colour in painted) is not is_grey


@contextmanager
def in_a_terminal(*words: str, term: str) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], bytes], int]]:
    """`kraft top` in a terminal of its own: the process, what it has written, and where its keys go."""
    keys, terminal = pty.openpty()
    os.set_blocking(keys, False)
    written = bytearray()

    def read() -> bytes:
        try:
            while part := os.read(keys, 65_536):
                written.extend(part)
        except (BlockingIOError, OSError):
            pass
        return bytes(written)

    environment = {**os.environ, "TERM": term, "COLUMNS": "80", "LINES": "24"}
    command = [sys.executable, "-m", "kraft", "top", *words]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment) as process:
        os.close(terminal)
        try:
            yield process, read, keys
        finally:
            process.kill()
            os.close(keys)


@pytest.mark.parametrize(
    ("term", "end", "code"), [("xterm", b"q", 0), ("xterm", signal.SIGTERM, 0), ("dumb", signal.SIGINT, 130)]
)
def test_a_terminal_gets_the_screen_and_is_left_clean(term: str, end: bytes | signal.Signals, code: int) -> None:
    """Without a cluster: the view says that no controller answers, and goes on trying until its end."""
    words = ("--bootstrap-controller", f"127.0.0.1:{free_ports(1)[0]}", "--timeout", "0.2", "--interval", "0.2")
    with in_a_terminal(*words, term=term) as (process, read, keys):
        screens = 2 if term == "dumb" else 1
        eventually(lambda: read().count(b"NO LEADER") >= screens or process.poll() is not None, "the screen is there")
        assert process.poll() is None, read()
        if isinstance(end, bytes):
            os.write(keys, end)
        else:
            process.send_signal(end)
        eventually(lambda: bool(read()) and process.poll() is not None, "the command ends")
        assert process.returncode == code, read()
        text = read()
        assert b"Traceback" not in text
        if term == "dumb":
            assert b"\x1b" not in text, "screens follow each other as plain text"
        else:
            assert text.rindex(b"\x1b[?1049l") > text.rindex(b"\x1b[?1049h"), "the terminal's own screen is back"
