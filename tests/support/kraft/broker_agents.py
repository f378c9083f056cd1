"""Broker agents for tests: new ones, and ones that a controller has unfenced."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from kraft.broker import BrokerAgent, BrokerListener, BrokerOptions, BrokerSettings, LifecycleState
from kraft.handling.reply_keys import Channel
from kraft.partitions.replicas.key import PartitionKey
from kraft.partitions.replicas.leading import Leading
from kraft.sim.nodes.broker_without_data import ReplicasWithoutData, agent_without_data
from kraft.wire import Send
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid
from transport.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from transport.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

ONE, TWO, TOPIC = (Uuid(bytes([0, number] * 8)) for number in (101, 102, 7))
EPOCH = 40


def new_agent(**options: object) -> BrokerAgent:
    """The agent of broker 101, which has directory `ONE`."""
    settings = BrokerSettings(
        broker_id=101,
        cluster_id="cluster",
        incarnation_id=Uuid(b"i" * 16),
        listeners=(BrokerListener("PLAINTEXT", "h101", 9092),),
        features=(("metadata.version", 7, 30),),
        options=replace(BrokerOptions(directories=(ONE,)), **options),
    )
    return agent_without_data(settings)


def only(sends: list[Send], channel: Channel) -> Message | None:
    """The one request of this channel, if there is one."""
    found = [send.message for send in sends if send.reply_to.key is channel]
    assert len(found) <= 1, found
    return found[0] if found else None


def heartbeat(agent: BrokerAgent, now_ms: int) -> BrokerHeartbeatRequest:
    """The heartbeat that the agent sends at this time."""
    request = only(agent.poll(now_ms), Channel.HEARTBEATS)
    assert isinstance(request, BrokerHeartbeatRequest), request
    return request


def started(**options: object) -> BrokerAgent:
    """An agent that was unfenced at 1000 ms."""
    agent = new_agent(**options)
    assert isinstance(only(agent.poll(0), Channel.HEARTBEATS), BrokerRegistrationRequest)
    agent.on_reply(Channel.HEARTBEATS, BrokerRegistrationResponse(broker_epoch=EPOCH), 5)
    assert heartbeat(agent, 5).want_fence
    agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True), 990)
    assert not heartbeat(agent, 1000).want_fence
    agent.on_reply(Channel.HEARTBEATS, BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False), 1000)
    assert agent.lifecycle.state is LifecycleState.RUNNING
    return agent


def replay(agent: BrokerAgent, records: Iterable[Message], base_offset: int) -> None:
    """Replay a committed batch at once."""
    committed = list(records)
    replaying = agent.begin_committed(base_offset)
    replaying.go_on(agent.noted(committed))
    agent.finish_committed(replaying, OffsetAndEpoch(epoch=1, offset=base_offset + len(committed)))


def led_by(agent: BrokerAgent) -> dict[PartitionKey, Leading]:
    """The partitions that an agent without data leads."""
    return without_data(agent).led


def without_data(agent: BrokerAgent) -> ReplicasWithoutData:
    """The replicas of an agent without data."""
    assert isinstance(agent.replicas, ReplicasWithoutData), agent.replicas
    return agent.replicas
