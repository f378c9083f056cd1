"""A schema registry beside the cluster of a test, which starts when its address is first asked for."""

from __future__ import annotations

from functools import partial

import trio

from kraft.testing.identities import HOST
from kraft.testing.live import LiveCluster
from transport.interface import Endpoint


class RegistryBeside:
    """The registry of a cluster.

    Args:
        cluster: The cluster, which runs.
        port: The port; 0 for any free one.
    """

    def __init__(self, cluster: LiveCluster, port: int = 0) -> None:
        self._cluster = cluster
        self._port = port
        self._starts = trio.Lock()
        self._scope: trio.CancelScope | None = None
        self._ended = trio.Event()

    async def url(self) -> str:
        """The address; starts the registry unless it runs.

        Raises:
            ModuleNotFoundError: The libraries of schemas are not installed.
        """
        async with self._starts:
            if self._scope is None:
                self._port = (await self._cluster.beside(self._run)).port
        return f"http://{HOST}:{self._port}"

    async def stop(self) -> bool:
        """End the registry; returns whether it ran. Its port stays its own."""
        async with self._starts:
            if self._scope is None:
                return False
            self._scope.cancel()
            await self._ended.wait()
        return True

    async def _run(self, task_status: trio.TaskStatus[Endpoint]) -> None:
        from kraft.registry.schemas import check_installed
        from kraft.registry.service import Registry

        check_installed()
        self._scope, self._ended = trio.CancelScope(), trio.Event()
        try:
            with self._scope:
                async with self._cluster.client() as client, trio.open_nursery() as nursery:
                    task_status.started(await nursery.start(partial(Registry(client).run, HOST, self._port)))
        finally:
            self._scope = None
            self._ended.set()
