"""A quorum of controllers of three, in virtual time, with the sessions of its brokers."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kraft.access.caller import Caller
from kraft.controller import QuorumController
from kraft.process.hosting import host_controller
from metadata_log.errors import MetadataLogError
from metadata_log.image import ResourceType
from metadata_log.records import metadata
from metadata_log.records.batch import scan
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch
from sessions_quorum import Quorum
from support.differential.controller_sides import registration
from support.kraft.replica_net import CLUSTER_ID, Net, formatted_disk
from support.kraft.simulated_quorum import alter, codes, controller_of, log_records
from transport.protocol.errors import Error
from transport.protocol.messages import (
    ApiVersionsRequest,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeQuorumRequest,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from transport.protocol.messages.create_topics import CreatableTopic
from transport.protocol.messages.describe_configs import DescribeConfigsResource
from transport.protocol.messages.describe_quorum import (
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)

SET, DELETE, APPEND, SUBTRACT = range(4)


def replay(controller: QuorumController, known: list[Message], base_offset: int, end: OffsetAndEpoch) -> None:
    """Replay a committed batch that another controller wrote."""
    batch = controller.begin_committed(base_offset)
    batch.go_on(known)
    controller.finish_committed(batch, end)


def active(count: int = 3, **changes: Any) -> tuple[Net, int]:
    net = Net(count, application=host_controller, **changes)
    leader = net.elect()
    net.until(lambda: controller_of(net, leader).history.committed.features.metadata_version is not None)
    return net, leader


def test_a_request_after_a_response_sees_the_acknowledged_change() -> None:
    """Clients are answered before the controller applies the commit, so the next request applies the commit first."""
    net, leader = active()
    subscription = DescribeConfigsResource(
        resource_type=ResourceType.CLIENT_METRICS, resource_name="subscription", configuration_keys=None
    )
    written = net.request(leader, alter(("interval.ms", SET, "1234")))
    while written not in net.answers:
        assert net.once()
    replica = net.processes[leader]
    assert replica.replica.status().applied_offset < replica.replica.core.log.high_watermark
    net.queue.clear()
    asked = net.request(leader, DescribeConfigsRequest(resources=[subscription]))
    assert net.once()
    answer = net.answers[asked]
    assert isinstance(answer, DescribeConfigsResponse)
    assert "1234" in [config.value for result in answer.results for config in result.configs]


def test_the_first_active_controller_writes_what_kafka_writes() -> None:
    """The log of a fresh 4.3-IV0 cluster: one batch 1-9 after the LeaderChange record at 0, then NoOps."""
    net, leader = active()
    first = [type(record).__name__ for _, record in log_records(net, leader)][:9]
    assert first == [
        "BeginTransactionRecord",
        *["FeatureLevelRecord"] * 6,
        "ConfigRecord",
        "EndTransactionRecord",
    ]
    batches = list(scan(net.log_of(leader)))
    assert [(batch.base_offset, batch.record_count, batch.is_control) for batch in batches[:2]] == [
        (0, 1, True),
        (1, 9, False),
    ]
    written = dict(log_records(net, leader))
    assert written[1] == metadata.BeginTransactionRecord(name="Bootstrap records")
    assert written[2] == metadata.FeatureLevelRecord(name="metadata.version", feature_level=30)
    assert written[8] == metadata.ConfigRecord(
        resource_type=ResourceType.BROKER, resource_name="", name="min.insync.replicas", value="1"
    )


def test_a_second_leader_writes_nothing_of_its_own() -> None:
    net, old = active()
    net.kill(old)
    new = net.elect()
    net.advance(100)
    later = {type(record).__name__ for offset, record in log_records(net, new) if offset > 9}
    assert later <= {"NoOpRecord", "RegisterControllerRecord"}
    assert controller_of(net, new).is_active


def registrations(net: Net, node: int) -> list[metadata.RegisterControllerRecord]:
    return [record for _, record in log_records(net, node) if isinstance(record, metadata.RegisterControllerRecord)]


def is_registered(net: Net, node: int, observer: int) -> bool:
    known = controller_of(net, observer).history.committed.controllers.by_id.get(node)
    return known is not None and known.incarnation_id == controller_of(net, node).settings.incarnation_id


def test_every_controller_registers_itself_once_per_start() -> None:
    """Standbys register at the active controller, which registers itself: one record each, also after a failover."""
    net, leader = active()
    net.until(lambda: all(is_registered(net, node, leader) for node in (1, 2, 3)))
    assert sorted(record.controller_id for record in registrations(net, leader)) == [1, 2, 3]
    first = registrations(net, leader)[0]
    assert [endpoint.name for endpoint in first.end_points] == ["CONTROLLER"]
    assert "metadata.version" in {feature.name for feature in first.features}
    net.kill(leader)
    new = net.elect()
    net.start(leader)
    net.until(lambda: is_registered(net, leader, new))
    assert sorted(record.controller_id for record in registrations(net, new)) == sorted([1, 2, 3, leader])


def test_no_ops_are_written_every_interval_among_other_records() -> None:
    net, leader = active(max_idle_interval_ms=500)
    before = len(log_records(net, leader))
    net.advance(5000)
    no_ops = [record for _, record in log_records(net, leader)[before:] if isinstance(record, metadata.NoOpRecord)]
    assert 9 <= len(no_ops) <= 11


def test_no_idle_interval_means_no_no_ops() -> None:
    net, leader = active(max_idle_interval_ms=0)
    before = len(log_records(net, leader))
    net.advance(5000)
    assert len(log_records(net, leader)) == before


def test_an_unchanged_value_is_confirmed_only_once_the_change_before_it_is_committed() -> None:
    """The second answer rests on the first one's record, which may still be lost."""
    net, leader = active(max_idle_interval_ms=0)
    net.cut = {leader}
    first = net.request(leader, alter(("interval.ms", SET, "1000")))
    second = net.request(leader, alter(("interval.ms", SET, "1000")))
    net.settle()
    assert first not in net.answers
    assert second not in net.answers
    net.elect()
    net.cut = set()
    net.elect()
    assert codes(net.answers[first]) == codes(net.answers[second]) == [Error.NOT_CONTROLLER]
    assert controller_of(net, leader).history.latest.configs.of((16, "subscription")).get("interval.ms") is None


@pytest.mark.parametrize(
    ("request_", "error", "text"),
    [
        (alter(("interval.ms", SET, "99")), Error.INVALID_REQUEST, "between 100 and 3600000"),
        (alter(("interval.ms", SET, "3600001")), Error.INVALID_REQUEST, "between 100 and 3600000"),
        (alter(("interval.ms", SET, "soon")), Error.INVALID_CONFIG, "Not a number of type INT"),
        (alter(("interval.ms", SET, "1_000")), Error.INVALID_CONFIG, "Not a number of type INT"),
        (alter(("nonsense", SET, "1")), Error.INVALID_REQUEST, "Unknown client metrics configuration: nonsense"),
        (alter(("match", SET, "client_id=a,what=b")), Error.INVALID_CONFIG, "Illegal client matching pattern: what=b"),
        (alter(("match", SET, "client_id=(")), Error.INVALID_CONFIG, "Illegal client matching pattern"),
        (alter(("match", SET, "client_id=" + "(" * 30_000)), Error.INVALID_CONFIG, "Illegal client matching pattern"),
        (alter(("match", SET, "client_id=a{99999999999}")), Error.INVALID_CONFIG, "Illegal client matching pattern"),
        (alter(("interval.ms", APPEND, "1")), Error.INVALID_CONFIG, "Can't APPEND to key interval.ms"),
        (
            alter(("metrics", APPEND, "x")),
            Error.INVALID_CONFIG,
            "Can't APPEND to key metrics because its type is not LIST",
        ),
        (alter(("metrics", SUBTRACT, "x")), Error.INVALID_CONFIG, "Can't SUBTRACT to key metrics"),
        (alter(("metrics", SET, "a,,b")), Error.INVALID_CONFIG, "Configuration 'metrics' values must not be empty."),
        (
            alter(("match", SET, "client_id=a,")),
            Error.INVALID_CONFIG,
            "Configuration 'match' values must not be empty.",
        ),
        (alter(("match", SET, "client_id=")), Error.INVALID_CONFIG, "Illegal client matching pattern: client_id="),
        (alter(("metrics", 9, "x")), Error.INVALID_REQUEST, "Unknown operation 9"),
        (alter(("metrics", SET, "x"), name=""), Error.INVALID_REQUEST, "Subscription name can't be empty"),
        (
            alter(("retention.ms", SET, "1"), kind=2),
            Error.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'subscription' does not exist.",
        ),
        (alter(("a", SET, "1"), kind=4, name="9"), Error.BROKER_ID_NOT_REGISTERED, "No node with id 9 found."),
        (alter(("a", SET, "1"), kind=4, name="x"), Error.INVALID_REQUEST, "Unable to parse broker name"),
        (alter(("a", SET, "1"), kind=32), Error.INVALID_CONFIG, "Unknown group config name: a"),
        (alter(("a", SET, "1"), kind=8), Error.UNSUPPORTED_VERSION, "Resources of type BROKER_LOGGER are not served"),
        (alter(("x", SET, "1"), kind=99), Error.UNSUPPORTED_VERSION, "Unknown resource type 99."),
    ],
)
def test_a_bad_change_is_refused_with_kafkas_code_and_writes_nothing(
    request_: IncrementalAlterConfigsRequest, error: Error, text: str
) -> None:
    net, leader = active(1, max_idle_interval_ms=0)
    before = net.log_of(leader)
    response = net.ask(leader, request_)
    assert isinstance(response, IncrementalAlterConfigsResponse)
    assert response.responses[0].error_code == error
    assert text in (response.responses[0].error_message or "")
    assert net.log_of(leader) == before
    assert controller_of(net, leader).is_active


def test_deleting_the_last_key_removes_the_resource() -> None:
    net, leader = active(1)
    net.ask(leader, alter(("metrics", SET, "a,b"), ("interval.ms", SET, "1000")))
    net.ask(leader, alter(("metrics", DELETE, None)))
    assert dict(controller_of(net, leader).history.committed.configs.of((16, "subscription"))) == {
        "interval.ms": "1000"
    }
    net.ask(leader, alter(("interval.ms", SET, None)))
    assert (16, "subscription") not in controller_of(net, leader).history.committed.configs.by_resource


def test_a_resource_named_twice_is_refused_and_the_others_go_through() -> None:
    net, leader = active(1)
    one = alter(("interval.ms", SET, "1000")).resources[0]
    two = alter(("interval.ms", SET, "2000"), name="other").resources[0]
    request = IncrementalAlterConfigsRequest(resources=[one, two, one])
    assert codes(net.ask(leader, request)) == [Error.INVALID_REQUEST, Error.NONE]


def test_describe_cluster_has_the_addresses_of_the_listener_of_the_request() -> None:
    """A client in the clear once got the addresses of TLS while a quorum went from PLAINTEXT to TLS."""
    settings = replace(
        controller_of(Net(1, application=host_controller), 1).settings,
        listeners=(("NEW", "n1", 9193), ("OLD", "n1", 9093)),
        listener="NEW",
        voters=((1, "n1", 9193), (2, "n2", 9193)),
    )
    controller = QuorumController(settings)
    both = (metadata.ControllerEndpoint("NEW", "n2", 9193), metadata.ControllerEndpoint("OLD", "n2", 9093))
    known: list[Message] = [
        metadata.FeatureLevelRecord(name="metadata.version", feature_level=30),
        metadata.RegisterControllerRecord(controller_id=2, end_points=both),
    ]
    replay(controller, known, 0, OffsetAndEpoch(epoch=1, offset=2))
    for listener, found in (("OLD", [(2, 9093)]), ("NEW", [(1, 9193), (2, 9193)]), ("", [(1, 9193), (2, 9193)])):
        asked = DescribeClusterRequest(endpoint_type=2)
        response = controller.handle(asked, 1, 1, 0, Caller(listener=listener)).response
        assert isinstance(response, DescribeClusterResponse)
        assert [(one.broker_id, one.port) for one in response.brokers] == found, listener


def test_a_controller_without_metadata_does_not_answer_unsupported_version() -> None:
    """Kafka's admin client would believe that for ever."""
    net, _ = active()
    for node in tuple(net.processes):
        net.kill(node)
    net.start(1)
    response = net.ask(1, DescribeClusterRequest(endpoint_type=2))
    assert (response.error_code, response.brokers) == (Error.NOT_CONTROLLER, [])


def test_api_versions_names_what_is_served_and_nothing_else() -> None:
    net, leader = active()
    asked = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    response = net.ask(leader, asked)
    assert [one.api_key for one in response.api_keys] == [
        *(1, 17, 18, 19, 20, 29, 30, 31, 32, 33, 36, 37, 38, 39, 40, 41, 43, 44, 45, 46, 49, 50, 51),
        *(52, 53, 54, 55, 56, 57, 58, 59, 60, 62, 63, 64, 67, 70, 73, 80, 81, 82, 94),
    ]
    assert response.finalized_features_epoch == 9, "as of the end of the bootstrap transaction"
    finalized = {one.name: one.max_version_level for one in response.finalized_features}
    assert finalized["metadata.version"] == 30
    assert "eligible.leader.replicas.version" in {one.name for one in response.supported_features}
    old = net.ask(leader, asked, version=3)
    assert [one.name for one in old.supported_features] == ["metadata.version"]
    assert net.ask(leader, ApiVersionsRequest(), version=0).supported_features == []


def test_a_login_is_illegal_on_a_listener_without_login() -> None:
    """Kafka announces the APIs on every listener, and names the state."""
    net, leader = active()
    assert net.ask(leader, SaslHandshakeRequest(mechanism="PLAIN")).error_code == Error.ILLEGAL_SASL_STATE
    answer = net.ask(leader, SaslAuthenticateRequest(auth_bytes=b"x"))
    assert answer.error_code == Error.ILLEGAL_SASL_STATE
    assert answer.error_message == "SaslAuthenticate request received after successful authentication"


def test_describe_quorum_answers_on_the_leader_and_refuses_elsewhere() -> None:
    net, leader = active()
    partition = DescribeQuorumRequestPartitionData(partition_index=0)
    topic = DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=[partition])
    for version in range(3):
        response = net.ask(leader, DescribeQuorumRequest(topics=[topic]), version=version)
        answer = response.topics[0].partitions[0]
        assert (answer.error_code, answer.leader_id) == (0, leader)
        assert [one.replica_id for one in answer.current_voters] == [1, 2, 3]
        assert len(response.nodes) == (3 if version == 2 else 0)
    standby = next(node for node in net.processes if node != leader)
    refused = net.ask(standby, DescribeQuorumRequest(topics=[topic])).topics[0].partitions[0]
    assert (refused.error_code, refused.leader_id) == (Error.NOT_LEADER_OR_FOLLOWER, 0)
    other = DescribeQuorumRequestTopicData(topic_name="other", partitions=[partition])
    unknown = net.ask(leader, DescribeQuorumRequest(topics=[other])).topics[0].partitions[0]
    assert unknown.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_an_old_release_is_bootstrapped_without_a_transaction() -> None:
    disk = formatted_disk(1, release="3.5-IV2")
    net = Net(1, application=host_controller)
    net.kill(1)
    net.disks[1] = disk
    net.start(1)
    net.elect()
    net.settle()
    kinds = [type(record).__name__ for _, record in log_records(net, 1)]
    assert kinds == ["FeatureLevelRecord"]


def test_an_unfinished_bootstrap_transaction_is_aborted_by_the_next_leader() -> None:
    """Its transaction may be open in the log: the next leader aborts it and begins anew."""
    net = Net(1, application=host_controller)
    net.elect()
    controller = controller_of(net, 1)
    begin = metadata.BeginTransactionRecord(name="Bootstrap records")
    fresh = QuorumController(controller.settings)
    replay(fresh, [begin], 1, OffsetAndEpoch(epoch=1, offset=2))
    kinds = [type(one.record).__name__ for one in fresh.activate(2, 2, 0).records]
    assert kinds[:2] == ["AbortTransactionRecord", "BeginTransactionRecord"]
    assert kinds[-1] == "EndTransactionRecord"


def test_an_unsupported_feature_level_stops_the_node_with_a_clear_error() -> None:
    controller = QuorumController(controller_of(Net(1, application=host_controller), 1).settings)
    record = metadata.FeatureLevelRecord(name="metadata.version", feature_level=34)
    with pytest.raises(MetadataLogError, match=r"metadata\.version 34, and this software supports 7 to 33"):
        replay(controller, [record], 0, OffsetAndEpoch(epoch=1, offset=1))


# Sessions of brokers on a quorum of three, in virtual time: registration, silence, and a change of leader.


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
