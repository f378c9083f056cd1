"""The turns of a node are measured, and long turns are logged."""

from __future__ import annotations

import logging

import pytest
from msgspec import Struct
from trio.testing import MockClock

import kraft
from kraft.limits import TURN_MS
from kraft.node.logging import NodeLog
from kraft.node.turns import ROOM_S, Turns
from kraft.quorum.events import Tick
from kraft.testing import Cluster
from kraft.wire import WireRequest
from transport.protocol.apis import ApiKey
from transport.protocol.messages import ElectLeadersRequest


def elections() -> WireRequest:
    """A request for elections."""
    return WireRequest(
        request_id=1,
        api_key=ApiKey.ELECT_LEADERS,
        version=2,
        message=ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=0),
        listener="CONTROLLER",
    )


async def test_a_long_turn_is_logged_with_its_slowest_event(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="kraft.node")
    turns = Turns(NodeLog(1, lambda: 0))
    turns.begin()
    mock_clock.jump(0.01)
    assert turns.did(Tick())
    mock_clock.jump((TURN_MS + 1) / 1000)
    assert not turns.did(elections()), "the turn has no room for more"
    turns.end()
    assert turns.longest.ms == pytest.approx(TURN_MS + 11)
    assert turns.longest.event == "WireRequest:ELECT_LEADERS"
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("long-turn node=1 ms=61 bound_ms=50 turn_of=WireRequest:ELECT_LEADERS turn_of_ms=51")


async def test_a_short_turn_is_not_logged_and_takes_more_events(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="kraft.node")
    turns = Turns(NodeLog(1, lambda: 0))
    turns.begin()
    mock_clock.jump(ROOM_S / 2)
    assert turns.did(Tick())
    mock_clock.jump(ROOM_S)
    assert not turns.did(Tick())
    turns.end()
    assert not caplog.records
    turns.begin()
    assert turns.did(Tick()), "a new turn has room anew"


class Think(Struct, frozen=True):
    seconds: float


class Slow(kraft.StateMachine[Think, int]):
    """A state machine with an `apply` that takes a given time."""

    clock: MockClock

    def apply(self, command: Think, at: kraft.Position) -> int:
        self.clock.jump(command.seconds)
        return at.offset

    def snapshot(self) -> bytes:
        return b""

    def restore(self, data: bytes) -> None:
        pass


async def test_a_slow_state_machine_is_named(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="kraft.node")
    Slow.clock = autojump_clock
    async with Cluster(controllers=1, seed=1, state_machine=Slow) as cluster:
        node = cluster.machine(1)
        await node.submit(Think(0.0))
        assert node.longest_turn.ms < TURN_MS
        await node.submit(Think(0.2))
        assert node.longest_turn.ms >= 200
    (line, *_) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("long-turn")]
    assert "of_which=StateMachine.apply of_which_ms=200" in line


@pytest.mark.parametrize(
    ("is_embedded", "own_s", "level"), [(False, 0, "WARNING"), (True, 0, "INFO"), (True, 0.06, "WARNING")]
)
async def test_a_program_that_embeds_a_node_is_warned_of_its_own_long_calls_alone(
    is_embedded: bool, own_s: float, level: str, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A busy machine makes long turns, and is no worry of that program, nor of the report of a failed test."""
    caplog.set_level(logging.INFO, logger="kraft.node")
    turns = Turns(NodeLog(1, lambda: 0, is_embedded=is_embedded))
    turns.begin()
    turns.watched("apply", mock_clock.jump)(own_s)
    mock_clock.jump(1)
    turns.did(Tick())
    turns.end()
    (record,) = caplog.records
    assert (record.levelname, record.getMessage().split()[0]) == (level, "long-turn")


async def test_an_embedded_node_says_nothing_of_a_busy_machine(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="kraft.node")
    async with Cluster(controllers=1, seed=1) as cluster:
        node = cluster.node(1)
        node._turns.begin()
        autojump_clock.jump(1)
        node._turns.did(Tick())
        node._turns.end()
        assert node.longest_turn.ms >= 1000
    (level,) = {one.levelname for one in caplog.records if one.getMessage().startswith("long-turn")}
    assert level == "INFO"
