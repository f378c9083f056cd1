"""Views of a node, ready and not."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import count

import trio

from kraft.metrics.readiness import Check, is_ready, readiness
from kraft.metrics.view import NodeView
from kraft.node.metrics.meters import Meters
from kraft.node.node import Node
from kraft.testing import Cluster


@cache
def meters_of(node: Node) -> Meters:
    """What a node has heard, from the first look on."""
    return Meters()


def view_of(node: Node) -> NodeView:
    """The view of a node of a test cluster, with the contact that its state has proved so far."""
    meters = meters_of(node)
    now_ms = node._clock.now_ms()
    meters.look(node._replica, now_ms)
    return NodeView(
        process=node._process,
        now_ms=now_ms,
        is_stopping=node.is_stopping,
        counted=meters.counted(node._transport),
    )


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Ask until the condition holds; the clock is an `autojump_clock`."""
    with trio.fail_after(seconds):
        for _ in count():
            if condition():
                return
            await trio.sleep(0.02)


def failing(checks: list[Check]) -> set[str]:
    return {one.name for one in checks if not one.ok}


def _is_ready(node: Node) -> bool:
    return is_ready(readiness(view_of(node)))


async def ready(cluster: Cluster, *node_ids: int) -> None:
    """Wait until these nodes are ready."""
    for node_id in node_ids:
        node = cluster.node(node_id)
        await until(partial(_is_ready, node))
