"""One suite for Trio, asyncio and threads: each test is a coroutine that gets a world, with the same names in each.

In the world of threads the coroutine never waits for anything: what it awaits are functions that have waited.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import trio

import kraft
import kraft.asyncio
import kraft.sync
from kraft.config import Config

Test = Callable[["World"], Coroutine[Any, Any, None]]


class World(ABC):
    """The tools of a test in one world. `api` has `open_store`, `Lock` and so on, with methods to await."""

    name: str
    api: Any
    store: Any

    it: Any
    """What is open."""

    def run(self, config: Config, test: Test) -> None:
        """Run a test with an open store."""

        async def with_store(world: World) -> None:
            world.store = world.it
            await test(world)

        self.open(lambda api: api.open_store(config), with_store)

    @abstractmethod
    def open(self, opened: Callable[[Any], Any], test: Test) -> None:
        """Run a test with something open, which is made of the API."""

    @abstractmethod
    def beside(self, function: Callable[[], Awaitable[None]]) -> AbstractAsyncContextManager[None]:
        """Run a function at the same time as the block, which ends when both have."""

    @abstractmethod
    async def gives_up(self, function: Callable[[Any], Awaitable[Any]], seconds: float) -> bool:
        """Whether the function, which gets a store, takes longer than that, so that it is cancelled."""


class TrioWorld(World):
    name = "trio"
    api = kraft

    def open(self, opened: Callable[[Any], Any], test: Test) -> None:
        async def main() -> None:
            async with opened(kraft) as self.it:
                await test(self)

        trio.run(main)

    @asynccontextmanager
    async def beside(self, function: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(function)
            yield

    async def gives_up(self, function: Callable[[Any], Awaitable[Any]], seconds: float) -> bool:
        with trio.move_on_after(seconds) as scope:
            await function(self.it)
        return scope.cancelled_caught


class AsyncioWorld(World):
    name = "asyncio"
    api = kraft.asyncio

    def open(self, opened: Callable[[Any], Any], test: Test) -> None:
        async def main() -> None:
            async with opened(kraft.asyncio) as self.it:
                await test(self)

        asyncio.run(main())

    @asynccontextmanager
    async def beside(self, function: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
        task = asyncio.ensure_future(function())
        yield
        await task

    async def gives_up(self, function: Callable[[Any], Awaitable[Any]], seconds: float) -> bool:
        try:
            await asyncio.wait_for(function(self.it), seconds)
        except TimeoutError:
            return True
        return False


class ThreadWorld(World):
    name = "threads"

    def __init__(self) -> None:
        self.api = Awaited(kraft.sync)

    def open(self, opened: Callable[[Any], Any], test: Test) -> None:
        with opened(kraft.sync) as it:
            self.it = Awaited(it)
            finish(test(self))

    @asynccontextmanager
    async def beside(self, function: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
        failed: list[BaseException] = []

        def run() -> None:
            try:
                finish(function())
            except BaseException as failure:
                failed.append(failure)

        thread = threading.Thread(target=run)
        thread.start()
        yield
        thread.join()
        for failure in failed:
            raise failure

    async def gives_up(self, function: Callable[[Any], Awaitable[Any]], seconds: float) -> bool:
        try:
            await function(Awaited(self.it.wrapped.within(seconds)))
        except TimeoutError:
            return True
        return False


NOT_AWAITED = {
    *(
        "watch",
        "observe",
        "entries",
        "lease",
        "campaign",
        "take",
        "leaders",
        "memberships",
        "committed",
        "append_soon",
        "append_many",
    ),
    *("create", "join", "create_store", "join_store", "connect_store"),
}
"""The functions that return a context manager, an iterator or a handle."""
WORLDS: tuple[Callable[[], World], ...] = (TrioWorld, AsyncioWorld, ThreadWorld)


def finish(coroutine: Any) -> None:
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits for something")


class Awaited:
    """An object whose methods can be awaited: they have returned by then."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.wrapped, name)
        return partial(self._call, found) if callable(found) else found

    def _call(self, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if isinstance(function, type):
            return Awaited(function(*map(unwrapped, given), **named))
        if getattr(function, "__name__", "") in NOT_AWAITED:
            return Awaited(function(*given, **named))
        return later(partial(function, *given, **named))

    async def __aenter__(self) -> Any:
        entered = self.wrapped.__enter__()
        return Awaited(entered) if isinstance(entered, kraft.sync.Store | kraft.sync.Node) else entered

    async def __aexit__(self, *ended: Any) -> Any:
        return self.wrapped.__exit__(*ended)

    def within(self, seconds: float) -> Any:
        """The result of a handle, or what a node returns, with a time."""
        if isinstance(self.wrapped, kraft.sync.AppendHandle):
            return later(partial(self.wrapped.result, seconds))
        return Awaited(self.wrapped.within(seconds))

    def __await__(self) -> Generator[Any, Any, Any]:
        return later(self.wrapped.result).__await__()

    def __aiter__(self) -> Awaited:
        return self

    async def __anext__(self) -> Any:
        try:
            return next(self.wrapped)
        except StopIteration:
            raise StopAsyncIteration from None


async def later(function: Callable[[], Any]) -> Any:
    return function()


def unwrapped(one: Any) -> Any:
    return one.wrapped if isinstance(one, Awaited) else one
