"""The work before and after a decision has steps, too: permissions, descriptions, and the answer in an envelope."""

from __future__ import annotations

from collections import deque

import pytest

from answers_in_steps import (
    ALICE,
    NAMES,
    STRICT,
    PerStep,
    allocation,
    waiting_for_followers,
    with_topics,
)
from counted_turns import Quorum
from kraft.access.authorizer import Authorizer
from kraft.config import definitions
from kraft.limits import ANSWERS_PER_TURN, CHEAP_PER_STEP, ITEMS_PER_ANSWER
from kraft.process.parts import Input
from kraft.process.process import Process
from kraft.quorum.events import Resign, Tick
from kraft.reads import configs as describe_configs
from kraft.replica.backlog import Backlog
from kraft.replica.deferred import Abandoned, Deferred, Held
from kraft.replica.interface.actions import ForRequest
from kraft.replica.interface.answer_weight import weight_of_refusal
from kraft.replica.interface.events import Output
from kraft.wire import Answer
from metadata_log.image import ResourceType
from metadata_log.serde import Message, encode
from support.differential.controller_sides import InProcess
from support.kraft.denials import taken
from transport.protocol import messages as m
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.headers import decode_response, encode_request
from transport.protocol.messages.alter_configs import AlterConfigsResource
from transport.protocol.messages.create_partitions import CreatePartitionsTopic
from transport.protocol.messages.create_topics import CreatableTopic
from transport.protocol.messages.delete_topics import DeleteTopicState
from transport.protocol.messages.describe_configs import DescribeConfigsResource, DescribeConfigsResourceResult
from transport.protocol.messages.elect_leaders import TopicPartitions
from transport.protocol.messages.incremental_alter_configs import AlterableConfig
from transport.protocol.messages.incremental_alter_configs import AlterConfigsResource as Altered
from transport.protocol.messages.principal import DefaultPrincipalData

PERMISSIONS_PER_ITEM = 2
FETCHES = 2
"""The followers that may get the answers to their fetches in the same step."""


def descriptions(names: list[str], kind: int = ResourceType.TOPIC) -> m.DescribeConfigsRequest:
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None) for name in names
    ]
    return m.DescribeConfigsRequest(resources=resources, include_synonyms=True)


REQUESTS: list[tuple[Message, int]] = [
    (m.CreateTopicsRequest(topics=[CreatableTopic(name=name) for name in NAMES]), 7),
    (m.DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in NAMES]), 6),
    (m.CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=9) for name in NAMES]), 3),
    (
        m.AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=2, resource_name=name) for name in NAMES]),
        2,
    ),
    (
        m.IncrementalAlterConfigsRequest(
            resources=[Altered(resource_type=2, resource_name=name) for name in NAMES],
        ),
        1,
    ),
    (descriptions(NAMES), 4),
]


@pytest.mark.parametrize(("request_", "version"), REQUESTS, ids=lambda one: type(one).__name__)
def test_a_step_checks_the_permissions_of_one_item(
    request_: Message, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each permission looks for every prefix of a name."""
    counter = PerStep()
    monkeypatch.setattr(Authorizer, "authorize", counter.counting(Authorizer.authorize))
    controller = InProcess(admin=STRICT).controller
    taken(controller.audited)
    result = counter.run(controller.steps(request_, version, 1, 0, ALICE))
    assert counter.total >= len(NAMES)
    assert counter.most <= 1 + PERMISSIONS_PER_ITEM
    assert len(taken(controller.audited)) == len(NAMES)
    told = result.response
    assert told is not None
    [items] = [value for name in told.__struct_fields__ if isinstance(value := getattr(told, name), list) and value]
    assert {one.error_code for one in items} == {Error.TOPIC_AUTHORIZATION_FAILED}
    assert len(items) == len(NAMES)


def test_configurations_are_described_a_few_at_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics that set nothing of their own share their results; others cost what they set."""
    side = with_topics()
    changes = [AlterableConfig(name=key, config_operation=0, value="1000") for key in ("retention.ms", "segment.ms")]
    altered = [Altered(resource_type=2, resource_name=name, configs=changes) for name in NAMES[:100]]
    side.ask(m.IncrementalAlterConfigsRequest(resources=altered), 1)
    counter = PerStep()
    made = counter.counting(DescribeConfigsResourceResult)
    monkeypatch.setattr(describe_configs, "DescribeConfigsResourceResult", made)
    keys = sum(not key.is_internal for key in definitions.TOPIC.values())
    result = counter.run(side.controller.steps(descriptions(NAMES), 4, 1, 0))
    told = result.response
    assert isinstance(told, m.DescribeConfigsResponse)
    assert counter.total == keys + 2 * 100
    assert counter.most <= keys, "the table of all topics is one step"
    assert {len(one.configs) for one in told.results} == {keys}
    for number, one in enumerate(told.results):
        values = {config.name: (config.value, config.config_source) for config in one.configs}
        of_topic = {"retention.ms": ("1000", 1), "segment.ms": ("1000", 1)} if number < 100 else {}
        assert {key: value for key, value in values.items() if value[1] == 1} == of_topic


def test_a_repeatedly_described_node_takes_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = [AlterableConfig(name=f"key.{number}", config_operation=0, value="1") for number in range(200)]
    side = with_topics()
    altered = [Altered(resource_type=4, resource_name="", configs=changes)]
    side.ask(m.IncrementalAlterConfigsRequest(resources=altered), 1)
    counter = PerStep()
    collected = counter.counting(describe_configs._of_brokers)
    monkeypatch.setattr(describe_configs, "_of_brokers", collected)
    results = PerStep()
    made = results.counting(DescribeConfigsResourceResult)
    monkeypatch.setattr(describe_configs, "DescribeConfigsResourceResult", made)
    results.run(side.controller.steps(descriptions([""] * 50, ResourceType.BROKER), 4, 1, 0))
    assert counter.total == 1
    assert results.total == 50 * 201
    assert results.most <= 8


def test_an_answer_in_an_envelope_is_written_in_the_steps_of_the_decision() -> None:
    side = with_topics()
    wanted = [TopicPartitions(topic=name, partitions=[0, 1]) for name in NAMES]
    inner = m.ElectLeadersRequest(election_type=0, topic_partitions=wanted, timeout_ms=1)
    principal = DefaultPrincipalData(type="User", name="alice", token_authenticated=False)
    request = m.EnvelopeRequest(
        request_data=encode_request(ApiKey.ELECT_LEADERS, 2, 5, "tool", inner),
        request_principal=(0).to_bytes(2, "big") + encode(principal, 0),
        client_host_address=bytes((10, 0, 0, 1)),
    )
    steps = 0
    decision = side.controller.steps(request, 0, 1, 0)
    direct = sum(1 for _ in side.controller.steps(inner, 2, 1, 0))
    while True:
        try:
            next(decision)
        except StopIteration as end:
            result = end.value
            break
        steps += 1
    told = result.response
    assert isinstance(told, m.EnvelopeResponse)
    assert told.response_data is not None
    header, answer = decode_response(ApiKey.ELECT_LEADERS, 2, told.response_data)
    assert header.correlation_id == 5
    assert isinstance(answer, m.ElectLeadersResponse)
    outcomes = [one for topic in answer.replica_election_results for one in topic.partition_result]
    assert [one.error_code for one in outcomes] == [Error.ELECTION_NOT_NEEDED] * 2 * len(NAMES)
    elements = 3 * len(NAMES)
    assert steps - direct >= elements // CHEAP_PER_STEP


# Many answers at once


class Told:
    """The answers of one replica, in their order, and the most that one step has brought."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, node: int) -> None:
        self.requests: list[int] = []
        self.most = 0
        step = Process.step

        def counted(replica: Process, event: Input, now_ms: int) -> list[Output]:
            outputs = step(replica, event, now_ms)
            if replica.options.replica.node_id == node:
                told = [one.request_id for one in outputs if isinstance(one, Answer)]
                self.most = max(self.most, len(told))
                self.requests += told
            return outputs

        monkeypatch.setattr(Process, "step", counted)


def asked_at_once(quorum: Quorum, request: Message, count: int) -> list[int]:
    """So many requests that the leader decides on before it writes, so that one commit completes all of them."""
    net = quorum.net
    net.settle()
    asked = [net.request(quorum.leader, request) for _ in range(count)]
    for _ in asked:
        net.queue.popleft()()
    assert not net.answers.keys() & set(asked)
    return asked


def test_requests_refused_on_lost_leadership_are_answered_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = Quorum()
    net, former = quorum.net, quorum.leader
    asked = waiting_for_followers(quorum, allocation(quorum), 2500)
    told = Told(monkeypatch, former)
    net.step(former, Resign(net.processes[former].replica.core.epoch))
    assert not net.processes[former].may_stop
    while not net.processes[former].may_stop:
        assert net.processes[former].replica.proposals.deadline_ms == net.now_ms + 1
        net.now_ms += 1
        net.step(former, Tick())
    net.settle()
    assert net.answers.keys() >= set(asked)
    assert [one for one in told.requests if one in set(asked)] == asked
    assert told.most <= ANSWERS_PER_TURN + FETCHES
    assert {net.answers[one].error_code for one in asked} == {Error.NOT_CONTROLLER}
    assert net.processes[former].may_stop


def test_answers_to_committed_requests_are_sent_when_the_leadership_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quorum = Quorum()
    net, former = quorum.net, quorum.leader
    asked = asked_at_once(quorum, allocation(quorum), 2500)
    told = Told(monkeypatch, former)
    while not set(told.requests) & set(asked):
        assert net.once()
    assert not set(asked) <= net.answers.keys()
    net.step(former, Resign(net.processes[former].replica.core.epoch))
    net.until_ms(lambda: net.answers.keys() >= set(asked))
    assert {net.answers[one].error_code for one in asked} == {Error.NONE}


def test_large_refusals_have_turns_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each repeats thousands of names, which takes milliseconds."""
    quorum = Quorum()
    topics = [DeleteTopicState(name=f"t{number}") for number in range(20_000)]
    request = m.DeleteTopicsRequest(topics=topics)
    net, former = quorum.net, quorum.leader
    waiting_for_followers(quorum, allocation(quorum), 1)
    asked = [net.request(former, request) for _ in range(6)]
    net.settle()
    assert quorum.is_busy, "five of them wait for the first"
    net.until_ms(lambda: not quorum.is_busy)
    assert not net.answers.keys() & set(asked), "they rest on what is not committed"
    told = Told(monkeypatch, former)
    net.step(former, Resign(net.processes[former].replica.core.epoch))
    net.until_ms(lambda: net.answers.keys() >= set(asked))
    assert told.most <= 2 + ANSWERS_PER_TURN * ITEMS_PER_ANSWER // len(topics)


@pytest.mark.parametrize(("committed_offset", "in_a_turn"), [(0, 1), (1, 3)])
def test_a_refusal_weighs_what_its_request_names_and_an_answer_what_it_says(
    committed_offset: int, in_a_turn: int
) -> None:
    topics = [DeleteTopicState(name=f"t{number}") for number in range(100_000)]
    request = m.DeleteTopicsRequest(topics=topics)
    abandoned = Abandoned()
    held = deque(Held(0, 0, ForRequest(number, request, m.DeleteTopicsResponse())) for number in range(3))
    abandoned.add(held, committed_offset)
    taken = abandoned.take(ANSWERS_PER_TURN)
    assert [one.waiting.request_id for one, _ in taken if isinstance(one.waiting, ForRequest)] == [*range(in_a_turn)]
    assert {is_committed for _, is_committed in taken} == {committed_offset == 1}
    deferred = Deferred()
    for number in range(3):
        deferred.hold(Held(0, 0, ForRequest(number, request, m.DeleteTopicsResponse())))
    assert len(deferred.release(1, ANSWERS_PER_TURN)) == 3


def test_a_leader_has_nothing_uncommitted_at_first() -> None:
    backlog = Backlog()
    assert backlog.size_bytes == 0
    backlog.written(3, 100)
    backlog.release(2)
    assert backlog.size_bytes == 100
    backlog.release(3)
    assert backlog.size_bytes == 0
    backlog.written(5, 100)
    backlog.forget()
    backlog.written(9, 10)
    backlog.release(5)
    assert backlog.size_bytes == 10, "what was forgotten is counted no more"


@pytest.mark.parametrize(("topics", "partitions", "weight"), [(10, 10, 2), (130, 1, 5), (1, 0, 1)])
def test_the_weight_of_a_refusal_counts_items_and_what_is_in_them(topics: int, partitions: int, weight: int) -> None:
    wanted = [TopicPartitions(topic=f"t{one}", partitions=[*range(partitions)]) for one in range(topics)]
    assert weight_of_refusal(m.ElectLeadersRequest(topic_partitions=wanted)) == weight
