"""A broker answers what brokers of Kafka alone serve with UNSUPPORTED_VERSION, and closes no connection for it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kraft.broker.requests import Requests
from kraft.handling.settings import RequestSettings
from kraft.partitions.replicas import DataSettings, ReplicaManager
from kraft.process import unserved
from kraft.process.unserved import refuse_unserved
from metadata_log.memory_disk import MemoryDisk
from metadata_log.serde import encode
from metadata_log.types import Uuid
from transport.protocol.apis import Api, ApiKey
from transport.protocol.broker_listener import AT_BROKERS
from transport.protocol.errors import Error
from transport.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest, DeleteStateData
from transport.protocol.messages.delete_share_group_state import PartitionData as DeletedPartition
from transport.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from transport.protocol.messages.share_group_describe import ShareGroupDescribeRequest

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


def test_streams_groups_and_telemetry_are_not_served() -> None:
    assert {"StreamsGroupHeartbeat", "PushTelemetry"} <= {one.name for one in UNSERVED}


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
