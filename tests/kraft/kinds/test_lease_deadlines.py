"""A holder relies on its lease at no moment at which the lease may have ended.

The lease ends a whole life after its grant or its renewal is carried out, which may be as soon as that is asked for. So
the holder counts from before each request, whenever the answer comes, and however many requests are lost.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kraft.store.commands import Done, Grant, Granted, LeaseEnded, Renew
from kraft.store.errors import LeaseLost
from kraft.store.machine import StoreMachine
from kraft.store.store import Lease, Store

TTL = 3.0
NEVER = 1000.0


class Leader:
    """A node that carries commands out. A test says after how long it does so, and how long the answer takes then."""

    def __init__(self, *delays: tuple[float, float]) -> None:
        self.machine = StoreMachine()
        self.delays = list(delays)
        self.ends = 0.0
        """When the lease ends."""

    async def submit(self, command: Any) -> Any:
        before, after = self.delays.pop(0) if self.delays else (0.0, 0.0)
        await trio.sleep(before)
        now = trio.current_time()
        result: Any = Done(0)
        match command:
            case Grant(ttl_ms=ttl_ms):
                self.ends, result = now + ttl_ms / 1000, Granted(1)
            case Renew() if now > self.ends:
                result = LeaseEnded(1)
            case Renew():
                self.ends = now + TTL
            case _:
                self.ends = 0.0
        await trio.sleep(after)
        return result


async def hold(leader: Leader, seconds: float) -> tuple[float, bool]:
    """Hold a lease, and look at it all the time; returns for how long it was held, and whether it was lost.

    Whoever goes on though the block is cancelled looks at the lease, too.
    """
    leases: list[Lease] = []
    began = trio.current_time()
    held = 0.0

    async def look() -> None:
        nonlocal held
        while True:
            if leases and leases[0].is_held:
                held = trio.current_time() - began
                assert trio.current_time() <= leader.ends, "it has ended, and its holder relies on it"
            await trio.sleep(0.01)

    lost = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        try:
            with trio.move_on_after(seconds):
                async with Store(leader).lease(TTL) as lease:  # type: ignore[arg-type]  # as much of a node as is used
                    assert trio.current_time() <= leader.ends, "it has ended before its holder begins"
                    leases.append(lease)
                    await trio.sleep_forever()
        except LeaseLost:
            lost = True
        nursery.cancel_scope.cancel()
    return held, lost


LOST = NEVER, 0.0


@pytest.mark.parametrize(
    "delays",
    [
        pytest.param(((0.0, 1.5), LOST), id="a late answer to the grant, and then silence"),
        pytest.param(((0.0, 0.0), (0.0, 1.9), LOST), id="a late answer to a renewal, and then silence"),
        pytest.param(((0.0, 0.0), (0.0, 2.0), (0.0, 2.0), (0.0, 2.0), LOST), id="late answers, one after the other"),
        pytest.param(((0.0, 0.0), LOST), id="no renewal"),
        pytest.param(((0.0, 0.0), (1.9, 0.0), LOST), id="a renewal that is carried out late"),
        pytest.param(((0.0, 3.5), (0.0, 5.0), (0.0, 0.1), LOST), id="two answers that come too late"),
    ],
)
async def test_nobody_relies_on_a_lease_that_may_have_ended(
    delays: tuple[tuple[float, float], ...], autojump_clock: MockClock
) -> None:
    await hold(Leader(*delays), 20)


@pytest.mark.parametrize("seed", range(8))
async def test_nobody_relies_on_a_lease_with_any_delays(seed: int, autojump_clock: MockClock) -> None:
    rng = Random(f"lease deadlines {seed}")
    print("seed", seed)
    for _ in range(5):
        late = (0.0, 0.1, rng.random() * TTL, rng.random() * 2 * TTL)
        delays = [(rng.choice((*late, NEVER)), rng.choice(late)) for _ in range(12)]
        await hold(Leader(*delays), 15)


@pytest.mark.parametrize("seconds", [0.0, 0.9, 1.4])
async def test_a_lease_lives_on_if_each_answer_comes_in_half_its_life(
    seconds: float, autojump_clock: MockClock
) -> None:
    held, lost = await hold(Leader(*[(seconds / 2, seconds / 2)] * 30), 20)
    assert held > 19
    assert not lost
