"""Tells a function of the program that embeds a node what the metrics listener would show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import trio
from prometheus_client import Metric

from kraft.config import Config
from kraft.config.metrics_settings import MetricsSettings
from kraft.metrics.names import Dialect
from kraft.node.clock import NodeClock
from kraft.node.logging import NodeLog
from kraft.node.metrics.monitor import Monitor
from transport.interface import Endpoint

EVERY_S: Final = 10.0

Tell = Callable[[Mapping[str, float]], None]


class HookedMonitor(Monitor):
    """A monitor without a listener, which calls a function instead."""

    def __init__(self, config: Config, clock: NodeClock, tell: Tell, every_s: float) -> None:
        super().__init__(config, clock)
        self._tell = tell
        self._every_s = every_s
        self._dialect = Dialect(config.of(MetricsSettings).dialect)

    async def run(self, log: NodeLog, task_status: trio.TaskStatus[Endpoint | None] = trio.TASK_STATUS_IGNORED) -> None:
        """Call the function at each interval, until cancelled. What it raises is logged."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.beat)
            task_status.started(None)
            while True:
                await trio.sleep(self._every_s)
                values = _values(await self.families((self._dialect,)))
                try:
                    self._tell(values)
                except Exception as failed:
                    self._warn(log, failed)

    @staticmethod
    def _warn(node_log: NodeLog, failed: Exception) -> None:
        node_log.warn("metrics-hook", {"cause": repr(failed)})


def metrics_hook(tell: Tell, every_s: float = EVERY_S) -> Callable[[Config, NodeClock], HookedMonitor]:
    """The `monitor=` of `open_node`, `create` and `join` that tells a function the node's metrics from time to time.

    Args:
        tell: Gets the values by their names, with labels as Prometheus writes them: those that `/metrics` would show
            (`metrics.dialect` says under which names). It is called in the thread of the node, and must be quick.
        every_s: The interval in seconds.
    """
    return lambda config, clock: HookedMonitor(config, clock, tell, every_s)


def _values(families: Iterable[Metric]) -> dict[str, float]:
    return {_named(one.name, one.labels): one.value for family in families for one in family.samples}


def _named(name: str, labels: Mapping[str, str]) -> str:
    listed = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return f"{name}{{{listed}}}" if listed else name
