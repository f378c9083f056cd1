"""Requests that a controller refuses from 4.4-IV0 on, with the texts of Kafka 4.4.0, and takes before as 4.3.1 does."""

from __future__ import annotations

import pytest
from msgspec import structs

from metadata_log.records.metadata import FeatureLevelRecord
from metadata_log.types import Uuid
from support.differential.controller_sides import InProcess, registration
from transport.protocol.errors import Error
from transport.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    BrokerHeartbeatRequest,
    BrokerRegistrationResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    incremental_alter_configs,
)
from transport.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from transport.protocol.messages.create_partitions import CreatePartitionsTopic
from transport.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic

DIRECTORY = Uuid(b"d" * 16)


def with_broker(level: int, *, cordoned: bool = False) -> InProcess:
    """A controller with the broker 5, which is not fenced."""
    side = InProcess(bootstrap=(FeatureLevelRecord(name="metadata.version", feature_level=level),))
    asked = structs.replace(
        registration(5),
        cluster_id=side.controller.settings.cluster_id,
        log_dirs=[DIRECTORY],
        features=[structs.replace(one, max_supported_version=33) for one in registration(5).features],
    )
    answer = side.ask(asked, 4)
    assert isinstance(answer, BrokerRegistrationResponse)
    assert answer.error_code == Error.NONE
    beat = BrokerHeartbeatRequest(
        broker_id=5,
        broker_epoch=answer.broker_epoch,
        current_metadata_offset=side.end,
        want_fence=False,
        cordoned_log_dirs=[DIRECTORY] if cordoned else [],
    )
    side.ask(beat, 2)
    return side


def created(side: InProcess, name: str) -> CreateTopicsResponse:
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[5])],
    )
    answer = side.ask(CreateTopicsRequest(topics=[topic]), 7)
    assert isinstance(answer, CreateTopicsResponse)
    return answer


@pytest.mark.parametrize("level", [30, 31])
def test_a_manual_assignment_to_cordoned_directories(level: int) -> None:
    [result] = created(with_broker(level, cordoned=True), "t").topics
    if level == 30:
        assert result.error_code == Error.NONE
        return
    assert result.error_code == Error.INVALID_REPLICA_ASSIGNMENT
    assert result.error_message == (
        "The manual partition assignment includes broker 5, but all its log directories are cordoned."
    )


@pytest.mark.parametrize(
    ("level", "text"),
    [
        (30, "Unable to perform excessively large batch operation."),
        (33, "Excessively large number of additional partitions per request."),
    ],
)
def test_more_new_partitions_than_a_request_may_ask_for(level: int, text: str) -> None:
    """The sum counts, and nothing is written of either topic."""
    side = with_broker(level)
    for name in ("a", "b"):
        assert created(side, name).topics[0].error_code == Error.NONE
    before = len(side.batches)
    asked = [CreatePartitionsTopic(name=name, count=5002, assignments=None) for name in ("a", "b")]
    answer = side.ask(CreatePartitionsRequest(topics=asked, timeout_ms=1000), 3)
    assert isinstance(answer, CreatePartitionsResponse)
    assert {(one.error_code, one.error_message) for one in answer.results} == {(Error.POLICY_VIOLATION, text)}
    assert len(side.batches) == before


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_quota_is_a_finite_number(value: float) -> None:
    entity = [AlterClientQuotasRequestEntityData(entity_type="user", entity_name="a")]
    entry = AlterClientQuotasRequestEntryData(entity=entity, ops=[OpData(key="producer_byte_rate", value=value)])
    answer = with_broker(33).ask(AlterClientQuotasRequest(entries=[entry]), 1)
    assert isinstance(answer, AlterClientQuotasResponse)
    [result] = answer.entries
    assert (Error(result.error_code), result.error_message) == (
        Error.INVALID_REQUEST,
        "Quota producer_byte_rate must be a finite number",
    )


@pytest.mark.parametrize(("level", "error"), [(29, Error.INVALID_CONFIG), (30, Error.NONE)])
def test_directories_are_cordoned_from_their_level_on(level: int, error: Error) -> None:
    """Even the change to none is refused before, whoever takes it."""
    config = incremental_alter_configs.AlterableConfig(name="cordoned.log.dirs", value="")
    one = incremental_alter_configs.AlterConfigsResource(resource_type=4, resource_name="5", configs=[config])
    answer = with_broker(level).ask(IncrementalAlterConfigsRequest(resources=[one]), 1)
    assert isinstance(answer, IncrementalAlterConfigsResponse)
    assert [each.error_code for each in answer.responses] == [error]
