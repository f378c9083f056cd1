"""`voter_conditions` never sends anything in the clear to a listener that has the name of a protected protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio.testing

from kraft.admin import ClusterDescription, QuorumDescription, ReplicaDescription, open_admin
from kraft.admin.conditions import Condition, EpochReport, voter_conditions
from kraft.cli.cluster.quorum_why import why_lines
from kraft.config import PROTECTED_PROTOCOLS
from metadata_log.types import Uuid
from transport.interface import Endpoint, Gone, Inbound, Listener, Request
from transport.memory import MemoryNetwork, MemoryTransport
from transport.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, LeaderIdAndEpoch, PartitionData

CLEAR, OTHER, SECURE = Endpoint("voter", 1), Endpoint("voter", 2), Endpoint("voter", 3)
ANSWER = FetchResponse(
    responses=[
        FetchableTopicResponse(
            partitions=[PartitionData(current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=5), records=b"")]
        )
    ]
)


@asynccontextmanager
async def voter(network: MemoryNetwork, asked: list[str]) -> AsyncIterator[None]:
    """A voter that answers at three listeners, and notes the listener of each request."""
    transport = MemoryTransport(network, host="voter")

    def deliver(thing: Inbound) -> None:
        if isinstance(thing, Request):
            asked.append(thing.listener)
            transport.answer(thing, ANSWER)
        else:
            assert isinstance(thing, Gone), thing

    async with trio.open_nursery() as nursery:
        await nursery.start(transport.run, deliver)
        for port in (1, 2, 3):
            transport.listen(Listener(f"PORT{port}", "", port))
        yield
        nursery.cancel_scope.cancel()


async def condition(listeners: dict[str, Endpoint], registered: Endpoint | None) -> tuple[Condition, list[str]]:
    """The condition of a voter with these listeners, and the listeners that got a request."""
    network, asked = MemoryNetwork(), list[str]()
    told = ReplicaDescription(
        id=1,
        directory_id=Uuid.ZERO,
        log_end_offset=-1,
        last_fetch_ms=-1,
        last_caught_up_ms=-1,
        listeners=tuple(listeners.items()),
    )
    cluster = ClusterDescription(
        cluster_id="x", controller_id=1, controllers=() if registered is None else ((1, registered),)
    )
    quorum = QuorumDescription(leader_id=1, leader_epoch=5, high_watermark=9, voters=(told,), observers=())
    async with voter(network, asked), open_admin([CLEAR], transport=MemoryTransport(network, host="me")) as admin:
        [found] = await voter_conditions(admin, cluster, quorum)
    return found, asked


@pytest.mark.parametrize("name", PROTECTED_PROTOCOLS)
async def test_a_protected_listener_is_refused_by_name(autojump_clock: trio.testing.MockClock, name: str) -> None:
    found, asked = await condition({name: SECURE}, None)
    assert asked == []
    assert found.endpoint == SECURE
    [line, _] = why_lines([found], has_leader=True)
    assert f"Voter 1 at voter:3: cannot be asked: listener {name} has the protocol of its name" in line
    assert "name the file with --command-config" in line


@pytest.mark.parametrize(
    ("listeners", "registered", "port"),
    [
        pytest.param({"SSL": SECURE, "CONTROLLER": OTHER}, None, 2, id="another listener is there"),
        pytest.param({"SSL": SECURE}, CLEAR, 1, id="another listener has registered"),
        pytest.param({"CONTROLLER": OTHER, "SSL": SECURE}, OTHER, 2, id="the first listener is not protected"),
        pytest.param({"SSL": SECURE}, SECURE, 3, id="the cluster was described by this listener, in the clear"),
        pytest.param({}, CLEAR, 1, id="a static quorum names no listeners"),
        pytest.param({"NEW": SECURE}, CLEAR, 1, id="the voters use another listener than that of this client"),
    ],
)
async def test_an_unprotected_listener_is_tried_next(
    autojump_clock: trio.testing.MockClock, listeners: dict[str, Endpoint], registered: Endpoint | None, port: int
) -> None:
    found, asked = await condition(listeners, registered)
    assert (found.report, asked) == (EpochReport(epoch=5, leader_id=1), [f"PORT{port}"])
