"""A node with a paused process, as by SIGSTOP or on an overcommitted machine, that then goes on (decision 0016)."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest
import trio

from embedded_quorum import configs
from kraft.config import Config
from kraft.node.embed import open_node
from kraft.quorum.events import Received, Resumed, Tick
from kraft.quorum.messages import Fetch, FetchReply, VoteReply
from kraft.quorum.values import ReplicaKey
from metadata_log.types import NO_NODE
from support.kraft.one_core import OneCore, records_of_the_leader
from support.loopback import free_ports

PAUSES = 6
PAUSE_S = 1.3
"""Longer than the fetch timeout. A leader that has nothing to tell answers a Fetch after half a second."""
TIMEOUTS = {"controller.quorum.election.timeout.ms": "500", "controller.quorum.fetch.timeout.ms": "1000"}


def test_events_received_during_a_pause_precede_the_timers() -> None:
    """Any event is looked at with all timers in mind, so that the first of several would be a campaign's cause."""
    one = OneCore()
    one.now_ms += 10_000
    one.step(Resumed(50))
    one.step(Received(7, Fetch(epoch=5, replica=ReplicaKey(3), offset=1, last_epoch=5)))
    one.answer(records_of_the_leader())
    one.step(Tick())
    assert one.core.state_name == "Follower"
    one.advance(1900)
    assert one.campaigns == 0


def test_a_pause_delays_timers_for_at_most_the_grace_period() -> None:
    one = OneCore()
    one.now_ms += 10_000
    one.step(Resumed(50))
    one.advance(49)
    assert one.campaigns == 0
    one.advance(1)
    assert one.campaigns == 1


def test_a_leader_that_was_paused_waits_for_the_fetches_of_its_voters() -> None:
    one = OneCore()
    one.advance(2000)
    one.answer(VoteReply(epoch=5, granted=True), peer=3)
    one.answer(VoteReply(epoch=6, granted=True), peer=3)
    assert one.core.is_leader
    one.now_ms += 60_000
    one.step(Resumed(50))
    assert one.core.is_leader
    answer = one.ask(Fetch(epoch=6, replica=ReplicaKey(3), offset=101, last_epoch=6, max_wait_ms=0))
    assert isinstance(answer, FetchReply)
    one.advance(2900)
    assert one.core.is_leader
    one.advance(200)
    assert not one.core.is_leader


class Majority:
    """Two nodes in a thread of their own: what happens to this thread does not reach them."""

    def __init__(self, configs: list[Config]) -> None:
        self._configs = configs
        self._is_led = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._stop = trio.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._live,))

    def __enter__(self) -> Majority:
        self._thread.start()
        assert self._is_led.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        self._token.run_sync_soon(self._stop.set)
        self._thread.join()

    async def _live(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with open_node(self._configs[0]) as one, open_node(self._configs[1]) as other:
            await one.wait_for_leader()
            await other.wait_for_leader()
            self._is_led.set()
            await self._stop.wait()


async def test_a_paused_follower_reads_its_leaders_response_before_it_campaigns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By the clock the leader was silent for too long. Its answer lies in the socket."""
    caplog.set_level(logging.INFO, "kraft.node")
    made = configs(tmp_path, free_ports(3), **TIMEOUTS)
    with Majority(made[:2]):
        async with open_node(made[2]) as node:
            with trio.fail_after(30):
                while node.status().state != "Follower" or node.status().high_watermark < 0:
                    await node.wait_for_change()
                epoch = node.status().leader.epoch
                while node.status().flushed_offset < node.status().log_end_offset:
                    await trio.lowlevel.checkpoint()
                caplog.clear()
                for _ in range(PAUSES):
                    for _turn in range(50):
                        # The node deals with what it has found, and fetches on.
                        await trio.lowlevel.checkpoint()
                    threading.Event().wait(PAUSE_S)
    own = [record.getMessage() for record in caplog.records if "node=3 " in record.getMessage()]
    assert not [line for line in own if "Prospective" in line]
    assert node.status().leader.epoch == epoch
    assert node.status().leader.leader_id != NO_NODE
