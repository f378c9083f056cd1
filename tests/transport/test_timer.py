"""The timer: requests that were answered in time, which is nearly all, must leave nothing that grows or wakes."""

from __future__ import annotations

import trio

from transport.timer import Timer


class Expired:
    """Tokens that count, and those that ran out of time, with when."""

    def __init__(self) -> None:
        self.live: dict[int, None] = {}
        self.seen: list[tuple[float, int]] = []
        self.settled_at: list[float] = []
        self.timer = Timer(self.live, self.expire, lambda: self.settled_at.append(trio.current_time()))

    def start(self, token: int, at: float) -> None:
        self.live[token] = None
        self.timer.start(token, at)

    def expire(self, token: int) -> None:
        del self.live[token]
        self.seen.append((trio.current_time(), token))


async def test_tokens_expire_in_the_order_of_their_times(autojump_clock: trio.testing.MockClock):
    expired = Expired()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(expired.timer.run)
        for token, at in enumerate((5.0, 1.0, 3.0, 3.0)):
            expired.start(token, at)
        expired.live.pop(3)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert expired.seen == [(1.0, 1), (3.0, 2), (5.0, 0)]
    assert {1.0, 3.0, 5.0} <= set(expired.settled_at)


async def test_an_earlier_time_wakes_a_timer_that_sleeps_longer(autojump_clock: trio.testing.MockClock):
    expired = Expired()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(expired.timer.run)
        expired.start(1, 100.0)
        await trio.sleep(1)
        expired.start(2, 2.0)
        await trio.sleep(2)
        nursery.cancel_scope.cancel()
    assert expired.seen == [(2.0, 2)]


async def test_answered_requests_leave_the_timer(autojump_clock: trio.testing.MockClock):
    expired = Expired()
    for token in range(100_000):
        expired.start(token, 60.0)
        expired.live.pop(token)
        assert len(expired.timer) < 5000


async def test_answered_requests_do_not_wake_the_timer(autojump_clock: trio.testing.MockClock):
    """If they did, the timer would run as often as requests come, for nothing."""
    expired = Expired()
    for token in range(100):
        expired.start(token, 60.0 + token)
        expired.live.pop(token)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(expired.timer.run)
        await trio.testing.wait_all_tasks_blocked()
        assert len(expired.timer) == 0
        nursery.cancel_scope.cancel()


async def test_a_callback_that_retries_at_once_lets_other_tasks_run(autojump_clock: trio.testing.MockClock):
    """A user that retries at once from inside the callback must not be able to stop the node."""
    expired, count = Expired(), 0

    def again() -> None:
        nonlocal count
        count += 1
        expired.timer.later(again)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(expired.timer.run)
        expired.timer.later(again)
        for _ in range(50):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert 10 < count < 200
