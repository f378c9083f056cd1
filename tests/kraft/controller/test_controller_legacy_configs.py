"""AlterConfigs replaces the configuration of a resource as a whole, as Kafka's controller does it."""

from __future__ import annotations

from typing import Any

from metadata_log.records.metadata import ClearElrRecord, ConfigRecord
from metadata_log.serde import Message
from support.differential.admin_answers import (
    RECORDED,
    as_bytes,
    disagreements,
    exchanges,
    kafkas_records,
    only,
    our_records,
    settings_told,
)
from support.differential.controller_sides import InProcess, Side
from transport.protocol.messages import AlterConfigsRequest, CreateTopicsResponse
from transport.protocol.messages.alter_configs import AlterableConfig, AlterConfigsResource

TOPIC, BROKER, CLIENT_METRICS = 2, 4, 16


def replacement(kind: int, name: str, **configs: Any) -> AlterConfigsResource:
    named = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=named)


def test_answers_and_records_are_kafkas() -> None:
    """Topics have other ids; the order in a batch is that of Kafka's hash maps."""
    side = InProcess(release=RECORDED)
    names = Side(side.ask)
    for asked in exchanges("configs"):
        if isinstance(asked.answer, CreateTopicsResponse):
            names.topics |= {topic.name: topic.topic_id for topic in asked.answer.topics}
    known = settings_told("configs")
    different = disagreements("configs", side, lambda answer: only(known, _without_ids(names.named(answer))))
    assert different == {}
    assert as_bytes(_of_configs(our_records(side))) == as_bytes(_of_configs(kafkas_records("configs")))


def _of_configs(records: list[tuple[int, Message]]) -> list[tuple[int, Message]]:
    return [one for one in records if isinstance(one[1], (ConfigRecord, ClearElrRecord))]


def _without_ids(answer: Any) -> Any:
    for topic in answer.get("topics", ()):
        topic["topic_id"] = ""
    return answer


def test_settings_absent_from_a_legacy_request_are_removed() -> None:
    side = InProcess()
    side.ask(AlterConfigsRequest(resources=[replacement(CLIENT_METRICS, "m", metrics="a", interval_ms="1000")]), 2)
    side.ask(AlterConfigsRequest(resources=[replacement(CLIENT_METRICS, "m", interval_ms="2000")]), 2)
    assert dict(side.controller.history.latest.configs.of((CLIENT_METRICS, "m"))) == {"interval.ms": "2000"}
    only_looked_at = AlterConfigsRequest(resources=[replacement(CLIENT_METRICS, "m")], validate_only=True)
    side.ask(only_looked_at, 2)
    assert side.controller.history.latest.configs.of((CLIENT_METRICS, "m"))
    side.ask(AlterConfigsRequest(resources=[replacement(CLIENT_METRICS, "m")]), 2)
    assert not side.controller.history.latest.configs.of((CLIENT_METRICS, "m"))
