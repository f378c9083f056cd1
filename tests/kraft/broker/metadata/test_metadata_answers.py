"""Clients find topics and brokers: our answers are those that a broker of Kafka 4.3.1 gave at the same offset."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from broker_requests import RECORDED, answer_to, asked, exchange, image_at, new_requests, probes
from kraft.agenda import Agenda
from kraft.broker.metadata.auto_creation import AutoCreation
from kraft.config.data_settings import REPLICATION_FACTORS
from kraft.handling.coordinators import GROUP, TOPICS, TRANSACTION, java_hash, partition_of
from kraft.handling.reply_keys import Creation
from kraft.handling.settings import RequestSettings
from kraft.wire import Answer, Send
from metadata_log.image import MetadataImage
from metadata_log.records.batch import scan
from metadata_log.records.frame import decode_record
from metadata_log.records.metadata import ConfigRecord
from metadata_log.records.record import records
from metadata_log.serde import Message, decode, encode
from metadata_log.types import Uuid
from support.broker.request_brokers import due_of
from support.real_data import archive
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    MetadataRequest,
    MetadataResponse,
)
from transport.protocol.messages.create_topics import CreatableTopicResult
from transport.protocol.messages.describe_client_quotas import ComponentData
from transport.protocol.messages.describe_configs import DescribeConfigsResource
from transport.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequestCursor as Cursor
from transport.protocol.messages.describe_topic_partitions import TopicRequest
from transport.protocol.messages.metadata import MetadataRequestTopic

NOW = 1_795_387_601_600
TOPIC = "alerts-probe"


def without_order(message: Message) -> Message:
    """An answer without what Kafka draws at random (the controller) or takes from a hash table (the order)."""
    match message:
        case MetadataResponse():
            topics = sorted(message.topics, key=lambda one: (one.name or "", one.topic_id))
            brokers = sorted(message.brokers, key=lambda one: one.node_id)
            return replace(message, topics=topics, brokers=brokers, controller_id=0)
        case DescribeClusterResponse():
            return replace(message, brokers=sorted(message.brokers, key=lambda one: one.broker_id), controller_id=0)
        case _:
            return message


@pytest.mark.parametrize("api", ["Metadata", "DescribeTopicPartitions", "DescribeCluster"])
def test_each_recorded_request_has_the_answer_of_kafka(api: str):
    requests, compared = new_requests(), 0
    for probe in probes(api):
        request, kafkas = exchange(probe)
        ours = answer_to(requests, request, image_at(probe["t_ms"] - probe["ms"]))
        ours = decode(type(ours), request.version, encode(ours, request.version))
        assert without_order(ours) == without_order(kafkas), probe["label"]
        compared += 1
    assert compared == {"Metadata": 32, "DescribeTopicPartitions": 3, "DescribeCluster": 4}[api]


def test_the_controller_in_the_metadata_is_some_unfenced_broker():
    requests, image = new_requests(), image_at(NOW)
    drawn = set()
    for _ in range(40):
        answer = answer_to(requests, asked(MetadataRequest(topics=[]), 13, ApiKey.METADATA), image)
        assert isinstance(answer, MetadataResponse)
        drawn.add(answer.controller_id)
    assert drawn == {101, 102, 103}


def test_a_broker_without_the_listener_of_the_request_has_no_address_there():
    request = replace(asked(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 13, 3), listener="OTHER")
    answer = answer_to(new_requests(), request, image_at(NOW))
    assert isinstance(answer, MetadataResponse)
    assert answer.brokers == []
    assert {one.error_code for one in answer.topics[0].partitions} == {Error.LISTENER_NOT_FOUND}
    assert {one.leader_id for one in answer.topics[0].partitions} == {-1}
    assert sorted(answer.topics[0].partitions[0].offline_replicas) == [101, 102, 103]


def test_an_answer_about_more_topics_than_a_turn_has_room_for_takes_turns():
    requests, image = new_requests(), image_at(NOW)
    many = [MetadataRequestTopic(name=TOPIC), *(MetadataRequestTopic(name=name) for name in image.topics)]
    one_turn = asked(MetadataRequest(topics=many), 13, ApiKey.METADATA)
    # A DescribeConfigs of many topics has a step for each.
    resources = [DescribeConfigsResource(resource_type=2, resource_name=TOPIC) for _ in range(500)]
    long = asked(DescribeConfigsRequest(resources=resources), 4, ApiKey.DESCRIBE_CONFIGS, request_id=2)
    assert requests.on_request(long, image, 0) is None
    assert requests.agenda.deadline_ms == 0
    assert requests.on_request(one_turn, image, 0) is not None, "a short answer does not wait for a long one"
    turns, answers = 1, list(due_of(requests, 0))
    while not answers:
        turns += 1
        answers = list(due_of(requests, 0))
    assert turns > 1
    answer = answers[0]
    assert isinstance(answer, Answer)
    assert isinstance(answer.message, DescribeConfigsResponse)
    assert len(answer.message.results) == 500


def topic_partitions(names: list[str], **fields: Any) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names], **fields)
    answer = answer_to(new_requests(max_partitions=4), asked(request, 0, 75), image_at(NOW))
    assert isinstance(answer, DescribeTopicPartitionsResponse)
    return answer


def test_following_the_cursor_finds_each_partition_once():
    image, found, cursor = image_at(NOW), [], None
    for _ in range(200):
        answer = topic_partitions([], cursor=cursor)
        found += [(topic.name, one.partition_index) for topic in answer.topics for one in topic.partitions]
        if answer.next_cursor is None:
            break
        cursor = Cursor(topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index)
    assert found == [(name, number) for name in image.topics for number in range(len(image.topics[name].partitions))]
    assert len(found) > 40


@pytest.mark.parametrize(
    "cursor", [Cursor(topic_name="zz", partition_index=0), Cursor(topic_name=TOPIC, partition_index=-1)]
)
def test_a_cursor_that_is_not_among_the_topics_is_refused(cursor: Cursor):
    answer = topic_partitions([TOPIC], cursor=cursor)
    assert [(one.name, one.error_code) for one in answer.topics] == [(TOPIC, Error.INVALID_REQUEST)]


COORDINATORS = {"ptx-1": 102, "ptx-2": 103, "ptx-3": 102, "ptx-4": 103, "ptx-5": 102, "ptx-6": 103}
"""The coordinators that brokers of Kafka named in this cluster, each in the version of its number."""


@pytest.mark.parametrize("name", COORDINATORS)
def test_the_coordinator_of_a_transactional_id_is_the_one_that_kafka_names(name: str):
    node_id, version = COORDINATORS[name], int(name[-1])
    named: dict[str, Any] = {"coordinator_keys": [name]} if version >= 4 else {"key": name}
    request = FindCoordinatorRequest(key_type=1, **named)
    answer = answer_to(new_requests(), asked(request, version, 10), image_at(NOW))
    assert isinstance(answer, FindCoordinatorResponse)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.node_id, found.host, found.port) == (node_id, "127.0.0.1", 26000 + node_id)
    assert (found.error_code, found.error_message) == (Error.NONE, "" if version >= 4 else "NONE")


def test_a_broker_names_itself_as_coordinator():
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["ptx-1", "ptx-2"])
    answer = answer_to(new_requests(broker_id=102), asked(request, 6, 10), image_at(NOW))
    assert isinstance(answer, FindCoordinatorResponse)
    errors = [(one.error_code, one.node_id) for one in answer.coordinators]
    assert errors == [(Error.NONE, 102), (Error.NONE, 103)]


@pytest.mark.parametrize(
    ("text", "value"), [("", 0), ("ptx-1", 107006872), ("polygenelubricants", -(2**31)), ("\N{GRINNING FACE}", 1772899)]
)
def test_names_are_hashed_as_java_does(text: str, value: int):
    assert java_hash(text) == value
    assert partition_of(text, 50) == (0 if value == -(2**31) else abs(value)) % 50


def settings_of(topic: str) -> list[tuple[str, str | None]]:
    """The settings of a topic in the order of the real log. An image has them in an order that each process draws."""
    content = archive(RECORDED)["__cluster_metadata-0/00000000000000000000.log"]
    log = [
        decode_record(one.value or b"").record
        for batch in scan(content)
        if not batch.is_control
        for one in records(batch)
    ]
    return [(one.name, one.value) for one in log if isinstance(one, ConfigRecord) and one.resource_name == topic]


@pytest.mark.parametrize(("kind", "name"), [(GROUP, "__consumer_offsets"), (TRANSACTION, "__transaction_state")])
@pytest.mark.parametrize("version", range(1, 7))
def test_the_topic_of_coordinators_is_made_when_a_client_looks_for_one(version: int, kind: int, name: str):
    """Once, however many ask; they ask again. Its settings are those of a real cluster, in the order of its log."""
    keys: dict[str, Any] = {"coordinator_keys": ["g", "h"]} if version >= 4 else {"key": "g"}
    requests, image = new_requests(), MetadataImage()
    for _ in range(2):
        answer = answer_to(requests, asked(FindCoordinatorRequest(key_type=kind, **keys), version, 10), image)
        assert isinstance(answer, FindCoordinatorResponse)
        encode(answer, version)
        errors = [one.error_code for one in answer.coordinators] if version >= 4 else [answer.error_code]
        assert errors == [Error.COORDINATOR_NOT_AVAILABLE] * (2 if version >= 4 else 1)
    (sent,) = [one for one in due_of(requests, NOW) if isinstance(one, Send)]
    assert isinstance(sent.message, CreateTopicsRequest)
    (topic,) = sent.message.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == (name, 50, 3)
    assert [(one.name, one.value) for one in topic.configs] == settings_of(name)


@pytest.mark.parametrize(("kind", "name"), sorted(TOPICS.items()))
def test_a_refused_topic_of_coordinators_is_told_once_with_the_setting_to_change(kind: int, name: str):
    """With fewer brokers than replicas it is refused again and again, and clients only hear that there is none yet."""
    told: list[str] = []
    creation, image = AutoCreation(Agenda(), RequestSettings(broker_id=1), told.append), MetadataImage()
    error = Error.INVALID_REPLICATION_FACTOR
    text = "Unable to replicate the partition 3 time(s): only 1 broker(s) are registered."
    for _ in range(3):
        creation.create_internal(kind)
        (sent,) = creation.due(image, 1, NOW)
        assert isinstance(sent.reply_to.key, Creation)
        refused = CreatableTopicResult(name=name, error_code=error, error_message=text)
        creation.on_reply(sent.reply_to.key, CreateTopicsResponse(topics=[refused]), NOW)
    assert told == [
        f"{name} cannot be created: {error.name}: {text}; "
        f"set {REPLICATION_FACTORS[name]} of each broker to the number of brokers or less"
    ]


def listed(version: int, *types: int) -> ListConfigResourcesResponse:
    request = ListConfigResourcesRequest(resource_types=list(types))
    answer = answer_to(new_requests(), asked(request, version, 74), image_at(NOW))
    assert isinstance(answer, ListConfigResourcesResponse)
    return answer


def test_config_resources_are_listed_by_type():
    names = [one.resource_name for one in listed(1, 2).config_resources]
    assert names == list(image_at(NOW).topics)
    assert [one.resource_name for one in listed(1, 4).config_resources] == ["101", "102", "103"]
    assert {one.resource_type for one in listed(1).config_resources} >= {2, 4, 8}
    assert listed(0).config_resources == []
    assert listed(1, 3).error_code == Error.UNSUPPORTED_VERSION


def test_configs_of_topics_are_those_of_the_image_and_of_other_brokers_are_refused():
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name="alerts-compact"),
        DescribeConfigsResource(resource_type=4, resource_name="102"),
        DescribeConfigsResource(resource_type=2, resource_name="nope"),
    ]
    answer = answer_to(new_requests(), asked(DescribeConfigsRequest(resources=resources), 4, 32), image_at(NOW))
    assert isinstance(answer, DescribeConfigsResponse)
    compact, other, unknown = answer.results
    values = {one.name: (one.value, one.config_source) for one in compact.configs}
    assert values["cleanup.policy"] == ("compact", 1)
    assert other.error_code == Error.INVALID_REQUEST
    assert unknown.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("component", "error"),
    [
        (ComponentData(entity_type="", match_type=2, match=None), Error.INVALID_REQUEST),
        (ComponentData(entity_type="group", match_type=2, match=None), Error.UNSUPPORTED_VERSION),
        (ComponentData(entity_type="user", match_type=0, match=None), Error.INVALID_REQUEST),
        (ComponentData(entity_type="user", match_type=1, match="x"), Error.INVALID_REQUEST),
        (ComponentData(entity_type="user", match_type=9, match=None), Error.INVALID_REQUEST),
        (ComponentData(entity_type="user", match_type=2, match=None), Error.NONE),
    ],
)
def test_a_bad_filter_of_quotas_is_refused_as_in_kafka(component: ComponentData, error: Error):
    request = DescribeClientQuotasRequest(components=[component])
    answer = answer_to(new_requests(), asked(request, 1, 48), image_at(NOW))
    assert isinstance(answer, DescribeClientQuotasResponse)
    assert answer.error_code == error
    assert (answer.entries is None) == (error is not Error.NONE)


def test_ids_of_topics_that_do_not_exist_have_an_error_of_their_own():
    topics = [MetadataRequestTopic(name=None, topic_id=Uuid(bytes(15) + b"\x09"))]
    answer = answer_to(new_requests(), asked(MetadataRequest(topics=topics), 13, 3), image_at(NOW))
    assert isinstance(answer, MetadataResponse)
    assert [(one.name, one.error_code) for one in answer.topics] == [(None, Error.UNKNOWN_TOPIC_ID)]


LOADING = """
import sys
import kraft.broker.opening
from kraft.broker.metadata.answers import load_decisions
assert not {"kraft.reads.acls", "kraft.access.refusals"} & set(sys.modules), "a start loads what it needs"
load_decisions()
before = set(sys.modules)
from kraft.broker.metadata.reads import read_as_a_controller
from kraft.access.refusals import refusal
print(*(name for name in sys.modules if name.startswith(("kraft", "metadata_log")) and name not in before))
"""


def test_no_request_waits_for_modules_that_a_broker_loads_behind_its_start() -> None:
    """The first DescribeAcls took a third of a second of everybody's time."""
    done = subprocess.run(
        [sys.executable, "-c", LOADING], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[4]
    )
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
