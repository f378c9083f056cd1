"""A bug in the handling of one request is an answer and a log line; requests that we do not serve get their error."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kraft.access.failures import RequestFailure, RequestFailures
from kraft.broker.requests import Requests
from kraft.committed import Noted
from kraft.controller import ControllerResult
from kraft.controller.decision.result import Steps
from kraft.controller.decisions import Work
from kraft.controller.server import ControllerServer
from kraft.handling.settings import RequestSettings
from kraft.node.logging import NodeLog
from kraft.node.node import Node
from kraft.partitions.replicas import DataSettings, ReplicaManager
from kraft.process import unserved
from kraft.process.unserved import refuse_unserved
from kraft.replica.interface.actions import ForRequest, Proposal
from kraft.wire import Answer, WireRequest
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.frame import VersionedRecord
from metadata_log.records.metadata import NoOpRecord
from metadata_log.serde import encode
from metadata_log.types import Uuid
from support.differential.controller_sides import InProcess
from transport.protocol.apis import Api, ApiKey
from transport.protocol.broker_listener import AT_BROKERS
from transport.protocol.errors import Error
from transport.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from transport.protocol.messages.create_topics import CreatableTopic
from transport.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest, DeleteStateData
from transport.protocol.messages.delete_share_group_state import PartitionData as DeletedPartition
from transport.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from transport.protocol.messages.share_group_describe import ShareGroupDescribeRequest

NOW_MS = 1_000_000
CREATE = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])


def wire(message: Any, key: ApiKey) -> WireRequest:
    return WireRequest(request_id=1, api_key=key, version=3, message=message, listener="CONTROLLER")


def failing(records: int = 0, *, message: Any = CREATE) -> Work:
    """A decision with a bug after so many records and ten steps."""

    def begin(*_: object) -> Steps:
        yield from [None] * 10
        for _number in range(records):
            yield VersionedRecord(NoOpRecord())
        raise ZeroDivisionError("a bug")

    return Work(begin, None if message is None else wire(message, ApiKey.CREATE_TOPICS))


def host_of(*, is_survived: bool) -> ControllerServer:
    return ControllerServer(InProcess(max_idle_interval_ms=0).controller, RequestFailures(is_survived=is_survived))


def test_a_bug_in_a_decision_is_an_answer_and_a_log_line_and_the_next_request_is_decided() -> None:
    host = host_of(is_survived=True)
    done = host._decisions.decide(failing(), host.controller, NOW_MS)
    assert isinstance(done, Proposal)
    assert not done.units
    assert isinstance(done.waiting, ForRequest)
    response = done.waiting.response
    assert isinstance(response, CreateTopicsResponse)
    assert [one.error_code for one in response.topics] == [Error.UNKNOWN_SERVER_ERROR]
    assert host.agenda.deadline_ms == 0
    (noted,) = (one for one in host.on_tick(NOW_MS) if isinstance(one, Noted))
    assert isinstance(noted.what, RequestFailure)
    assert (noted.what.request, noted.what.what) == ("CreateTopicsRequest", "ZeroDivisionError: a bug")
    assert noted.what.where.startswith("process/test_request_failures.py:")
    assert host.agenda.deadline_ms > 0
    after = Work(lambda *_: ControllerResult(response=CreateTopicsResponse()), wire(CREATE, ApiKey.CREATE_TOPICS))
    assert isinstance(host._decisions.decide(after, host.controller, NOW_MS), Proposal)


def test_a_failed_decision_writes_nothing_of_its_incomplete_batch() -> None:
    host = host_of(is_survived=True)
    done = host._decisions.decide(failing(5), host.controller, NOW_MS)
    assert isinstance(done, Proposal)
    assert not done.units


def test_a_bug_in_a_read_is_an_answer() -> None:
    host = host_of(is_survived=True)
    done = host._decisions.read(failing(message=DescribeAclsRequest(1, None, 1, None, None, 1, 1)), host.controller, 0)
    assert isinstance(done, Answer)
    assert isinstance(done.message, DescribeAclsResponse)
    assert done.message.error_code == Error.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(("is_survived", "message"), [(False, CREATE), (True, None)])
def test_a_bug_ends_the_node_in_tests_and_in_the_simulator_and_if_no_client_asked(
    is_survived: bool, message: Any
) -> None:
    host = host_of(is_survived=is_survived)
    with pytest.raises(ZeroDivisionError):
        host._decisions.decide(failing(message=message), host.controller, NOW_MS)


def test_the_log_of_a_node_names_the_request_the_exception_and_the_line(caplog: pytest.LogCaptureFixture) -> None:
    node = Node.__new__(Node)
    node._log = NodeLog(1, lambda: 0)
    with caplog.at_level("WARNING", "kraft.node"):
        for _ in range(3):
            node._on_told(Noted(RequestFailure("FetchRequest", "ZeroDivisionError: a bug", "request/fetch.py:7")))
    assert caplog.messages == [
        "request-failed node=1 request=FetchRequest cause='ZeroDivisionError: a bug' at=request/fetch.py:7 held_back=0"
    ]


# A broker answers what brokers of Kafka alone serve with UNSUPPORTED_VERSION, and closes no connection for it.


LOGINS = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
"""The process answers these."""
MANAGER = ReplicaManager(MemoryDisk(), DataSettings(broker_id=1, directories=()))
SERVED = {int(key) for key in (*Requests(MANAGER, RequestSettings(broker_id=1), Random(1)).apis, *LOGINS)}
UNSERVED = [api for key, api in AT_BROKERS.items() if key not in SERVED]


@pytest.mark.parametrize("api", UNSERVED, ids=lambda one: one.name)
def test_each_api_that_clients_may_ask_a_broker_of_kafka_for_has_an_answer(api: Api) -> None:
    answer: Any = refuse_unserved(api.request())
    assert type(answer) is api.response
    for version in range(api.versions.lowest, api.versions.highest + 1):
        encode(answer, version)
    assert getattr(answer, "error_code", Error.UNSUPPORTED_VERSION) == Error.UNSUPPORTED_VERSION


def test_telemetry_is_not_served() -> None:
    assert {"GetTelemetrySubscriptions", "PushTelemetry"} <= {one.name for one in UNSERVED}


def test_each_group_and_each_partition_has_the_error() -> None:
    answer: Any = refuse_unserved(ShareGroupDescribeRequest(group_ids=["a", "b"]))
    assert [(one.group_id, one.error_code) for one in answer.groups] == [("a", 35), ("b", 35)]
    wanted = [DescribeShareGroupOffsetsRequestGroup(group_id="a")]
    answer = refuse_unserved(DescribeShareGroupOffsetsRequest(groups=wanted))
    assert [(one.group_id, one.error_code) for one in answer.groups] == [("a", 35)]
    topic = DeleteStateData(Uuid(b"\1" * 16), [DeletedPartition(3), DeletedPartition(4)])
    answer = refuse_unserved(DeleteShareGroupStateRequest(group_id="a", topics=[topic]))
    (result,) = answer.results
    assert [(one.partition, one.error_code) for one in result.partitions] == [(3, 35), (4, 35)]


def test_a_very_large_request_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unserved, "UNSERVED_ENTRIES", 2)
    assert refuse_unserved(ShareGroupDescribeRequest(group_ids=["a", "b"])) is not None
    assert refuse_unserved(ShareGroupDescribeRequest(group_ids=["a", "b", "c"])) is None
    topic = DeleteStateData(Uuid(b"\1" * 16), [DeletedPartition(3), DeletedPartition(4)])
    assert refuse_unserved(DeleteShareGroupStateRequest(group_id="a", topics=[topic])) is None
