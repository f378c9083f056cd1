"""Sessions of brokers on a quorum of three, in virtual time: registration, silence, and a change of leader."""

from __future__ import annotations

from support.differential.controller_sides import registration
from support.kraft.replica_net import CLUSTER_ID
from support.kraft.sessions_quorum import Quorum
from transport.protocol.errors import Error
from transport.protocol.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from transport.protocol.messages.create_topics import CreatableTopic


def test_an_uncommitted_registration_is_forgotten() -> None:
    """A leader that is cut off takes a registration, which no other node ever sees."""
    quorum = Quorum()
    quorum.arrive(101)
    old = quorum.leader
    quorum.net.cut = {old}
    asked = quorum.net.request(old, registration(102, cluster_id=CLUSTER_ID))
    quorum.net.settle()
    assert asked not in quorum.net.answers
    quorum.leader = quorum.net.elect()
    quorum.net.cut = set()
    quorum.net.elect()
    refused = quorum.net.answers[asked]
    assert isinstance(refused, BrokerRegistrationResponse)
    assert refused.error_code == Error.NOT_CONTROLLER
    assert all(102 not in quorum.controller(node).history.latest.brokers.by_id for node in quorum.net.processes)
    quorum.arrive(102)


def test_a_full_append_queue_refuses_requests_and_fences_no_broker() -> None:
    """The queue of a leader that is cut off fills up; further requests are answered as by Kafka with a full queue."""
    quorum = Quorum(max_waiting=3)
    quorum.arrive(101)
    leader = quorum.leader
    quorum.net.cut = {leader}

    def create(name: str) -> int:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        return quorum.net.request(leader, CreateTopicsRequest(topics=[topic]))

    waiting = [create(f"t{number}") for number in range(3)]
    refused = create("one-too-many")
    beat = BrokerHeartbeatRequest(broker_id=101, broker_epoch=quorum.epochs[101], want_fence=True)
    asked = quorum.net.request(leader, beat)
    listed = quorum.net.request(leader, DescribeClusterRequest(endpoint_type=2))
    before = quorum.net.processes[leader].replica.core.log.end_offset
    quorum.net.settle()
    assert not set(waiting) & set(quorum.net.answers)
    full = quorum.net.answers[refused]
    assert isinstance(full, CreateTopicsResponse)
    assert [Error(one.error_code) for one in full.topics] == [Error.REQUEST_TIMED_OUT]
    heard = quorum.net.answers[asked]
    assert isinstance(heard, BrokerHeartbeatResponse)
    assert heard.error_code == Error.REQUEST_TIMED_OUT
    assert isinstance(quorum.net.answers[listed], DescribeClusterResponse)
    assert "one-too-many" not in quorum.controller(leader).history.latest.topics
    assert not quorum.controller(leader).history.latest.brokers.by_id[101].fenced
    assert quorum.net.processes[leader].replica.core.log.end_offset == before + 6
