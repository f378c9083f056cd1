"""A request that fails as a whole is refused in steps: its answer repeats each item, perhaps a million of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from answers_in_steps import ALICE, NAMES, STRICT, PerStep, allocation, waiting_for_followers, with_topics
from counted_turns import Counted, Quorum
from kraft.access import refusals
from kraft.access.caller import Caller
from kraft.access.errors import ApiError
from kraft.controller.security import scram
from kraft.controller.topics import topics
from kraft.limits import DECISION_STEPS_PER_TURN, ITEMS_PER_STEP
from kraft.quorum.events import Resign
from kraft.reads import scram as described
from metadata_log.image import Partition
from metadata_log.records.scram import derived_keys
from metadata_log.serde import Message, encode
from metadata_log.types import Uuid
from support.differential.controller_sides import InProcess
from transport.protocol import messages as m
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.headers import decode_response, encode_request
from transport.protocol.messages.alter_client_quotas import AlterClientQuotasRequestEntityData as EntityData
from transport.protocol.messages.alter_client_quotas import AlterClientQuotasRequestEntryData as EntryData
from transport.protocol.messages.alter_configs import AlterConfigsResource
from transport.protocol.messages.alter_partition_reassignments import ReassignablePartition, ReassignableTopic
from transport.protocol.messages.alter_user_scram_credentials import ScramCredentialDeletion, ScramCredentialUpsertion
from transport.protocol.messages.create_partitions import CreatePartitionsTopic
from transport.protocol.messages.create_topics import CreatableTopic
from transport.protocol.messages.delete_topics import DeleteTopicState
from transport.protocol.messages.describe_configs import DescribeConfigsResource
from transport.protocol.messages.describe_user_scram_credentials import UserName
from transport.protocol.messages.elect_leaders import TopicPartitions
from transport.protocol.messages.incremental_alter_configs import AlterConfigsResource as Altered
from transport.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsTopics
from transport.protocol.messages.principal import DefaultPrincipalData

ADMIN = Caller("User", "admin", host="10.0.0.1")
ITEMS = 500
MANY = 200_000
"""More than one turn has room for."""
PER_TURN = 2 * DECISION_STEPS_PER_TURN * ITEMS_PER_STEP
"""An answer that begins and one that goes on may share a turn."""


def named(make: Callable[[str], Any]) -> list[Any]:
    """An item for each name."""
    return [make(f"name-{number}") for number in range(ITEMS)]


def elections(count: int, topics_: int = 1) -> m.ElectLeadersRequest:
    """A request for elections of so many partitions."""
    asked = [TopicPartitions(topic=f"t{number}", partitions=list(range(count // topics_))) for number in range(topics_)]
    return m.ElectLeadersRequest(election_type=0, topic_partitions=asked, timeout_ms=60_000)


def moved() -> list[ReassignableTopic]:
    """A topic with partitions to move."""
    return [ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=at) for at in range(ITEMS)])]


REFUSED: dict[str, tuple[Message, int, str]] = {
    "elections": (elections(ITEMS), 2, "PartitionResult"),
    "elections of many topics": (elections(ITEMS, ITEMS), 2, "PartitionResult"),
    "reassignments": (
        m.AlterPartitionReassignmentsRequest(topics=moved()),
        1,
        "ReassignablePartitionResponse",
    ),
    "creations": (
        m.CreateTopicsRequest(topics=named(lambda name: CreatableTopic(name=name))),
        7,
        "CreatableTopicResult",
    ),
    "growth": (
        m.CreatePartitionsRequest(topics=named(lambda name: CreatePartitionsTopic(name=name, count=9))),
        3,
        "CreatePartitionsTopicResult",
    ),
    "deletions": (
        m.DeleteTopicsRequest(topics=named(lambda name: DeleteTopicState(name=name))),
        6,
        "DeletableTopicResult",
    ),
    "deletions by name": (m.DeleteTopicsRequest(topic_names=named(str)), 5, "DeletableTopicResult"),
    "incremental configurations": (
        m.IncrementalAlterConfigsRequest(resources=named(lambda name: Altered(resource_type=2, resource_name=name))),
        1,
        "AlterConfigsResourceResponse",
    ),
    "configurations": (
        m.AlterConfigsRequest(resources=named(lambda name: AlterConfigsResource(resource_type=2, resource_name=name))),
        2,
        "ReplacedConfigs",
    ),
    "quotas": (
        m.AlterClientQuotasRequest(
            entries=named(lambda name: EntryData(entity=[EntityData(entity_type="user", entity_name=name)], ops=[]))
        ),
        1,
        "AlterClientQuotasResponseEntryData",
    ),
    "credentials": (
        m.AlterUserScramCredentialsRequest(
            deletions=named(lambda name: ScramCredentialDeletion(name=name, mechanism=1)), upsertions=[]
        ),
        0,
        "AlterUserScramCredentialsResult",
    ),
}
FORBIDDEN: dict[str, tuple[Message, int, str]] = {
    "list of reassignments": (
        m.ListPartitionReassignmentsRequest(
            topics=[ListPartitionReassignmentsTopics(name="t", partition_indexes=list(range(ITEMS)))]
        ),
        0,
        "OngoingPartitionReassignment",
    ),
}


def refused_by(
    side: InProcess,
    request: Message,
    version: int,
    entry: str,
    monkeypatch: pytest.MonkeyPatch,
) -> PerStep:
    """How many entries of the answer each step of the refusal makes."""
    counter = PerStep()
    monkeypatch.setattr(refusals, entry, counter.counting(getattr(refusals, entry)))
    told = counter.run(side.controller.steps(request, version, 1, 0, ALICE)).response
    assert told is not None
    return counter


@pytest.mark.parametrize("what", REFUSED)
def test_a_standby_refuses_a_few_items_at_a_step(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    side = InProcess()
    side.controller.renounce()
    counter = refused_by(side, *REFUSED[what], monkeypatch)
    assert counter.total == ITEMS
    assert counter.most <= ITEMS_PER_STEP


@pytest.mark.parametrize("what", FORBIDDEN)
def test_a_caller_without_permission_is_refused_a_few_items_at_a_step(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = refused_by(InProcess(admin=STRICT), *FORBIDDEN[what], monkeypatch)
    assert counter.total == ITEMS
    assert counter.most <= ITEMS_PER_STEP


def test_the_entries_of_a_refused_list_share_one_list() -> None:
    """To free three lists of each entry takes longer than a turn may."""
    request, version, _ = FORBIDDEN["list of reassignments"]
    told = InProcess(admin=STRICT).controller.handle(request, version, 1, 0, ALICE).response
    assert isinstance(told, m.ListPartitionReassignmentsResponse)
    [topic] = told.topics
    lists = [value for one in topic.partitions for value in (one.replicas, one.adding_replicas, one.removing_replicas)]
    assert len(lists) == 3 * ITEMS
    assert {id(value) for value in lists} == {id(lists[0])}
    assert not lists[0]


def test_malformed_deletions_are_refused_a_few_items_at_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = PerStep()
    monkeypatch.setattr(topics, "_malformed", counter.counting(topics._malformed))
    both = named(lambda name: DeleteTopicState(name=name, topic_id=Uuid(b"i" * 16)))
    told = counter.run(InProcess().controller.steps(m.DeleteTopicsRequest(topics=both), 6, 1, 0)).response
    assert isinstance(told, m.DeleteTopicsResponse)
    assert [one.error_code for one in told.responses] == [Error.INVALID_REQUEST] * ITEMS
    assert counter.total == ITEMS
    assert counter.most <= ITEMS_PER_STEP


def test_a_description_is_refused_a_few_items_at_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = PerStep()
    monkeypatch.setattr(refusals, "DescribeConfigsResult", counter.counting(refusals.DescribeConfigsResult))
    resources = named(lambda name: DescribeConfigsResource(resource_type=2, resource_name=name))
    counter.run(refusals.refusal(m.DescribeConfigsRequest(resources=resources), ApiError(Error(31))))
    assert counter.total == ITEMS
    assert counter.most <= ITEMS_PER_STEP


def test_a_refusal_in_an_envelope_is_made_a_few_items_at_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    side = InProcess(admin=STRICT)
    principal = DefaultPrincipalData(type="User", name="alice", token_authenticated=False)
    request = m.EnvelopeRequest(
        request_data=encode_request(ApiKey.ELECT_LEADERS, 2, 5, "tool", elections(ITEMS)),
        request_principal=(0).to_bytes(2, "big") + encode(principal, 0),
        client_host_address=bytes((10, 0, 0, 1)),
    )
    counter = PerStep()
    monkeypatch.setattr(refusals, "PartitionResult", counter.counting(refusals.PartitionResult))
    told = counter.run(side.controller.steps(request, 0, 1, 0, ADMIN)).response
    assert isinstance(told, m.EnvelopeResponse)
    assert told.response_data is not None
    _, answer = decode_response(ApiKey.ELECT_LEADERS, 2, told.response_data)
    assert isinstance(answer, m.ElectLeadersResponse)
    assert answer.error_code == Error.CLUSTER_AUTHORIZATION_FAILED
    assert counter.total == ITEMS
    assert counter.most <= ITEMS_PER_STEP


# Decisions that took one step


def test_a_list_of_reassignments_looks_at_a_few_partitions_at_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is under way, so that there is nothing to answer."""
    side = with_topics()
    asked = [ListPartitionReassignmentsTopics(name=NAMES[0], partition_indexes=[0, 1] * ITEMS)]
    counter = PerStep()
    is_reassigning: Any = vars(Partition)["is_reassigning"]
    monkeypatch.setattr(Partition, "is_reassigning", property(counter.counting(is_reassigning.fget)))
    counter.run(side.controller.steps(m.ListPartitionReassignmentsRequest(topics=asked), 0, 1, 0))
    assert counter.total == 2 * ITEMS
    assert counter.most <= ITEMS_PER_STEP


def test_credentials_are_derived_one_at_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = PerStep()
    monkeypatch.setattr(scram, "derived_keys", counter.counting(derived_keys))
    added = named(
        lambda name: ScramCredentialUpsertion(
            name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
        )
    )
    request = m.AlterUserScramCredentialsRequest(deletions=[], upsertions=added)
    told = counter.run(InProcess().controller.steps(request, 0, 1, 0)).response
    assert isinstance(told, m.AlterUserScramCredentialsResponse)
    assert {one.error_code for one in told.results} == {Error.NONE}
    assert counter.total == ITEMS
    assert counter.most == 1


def test_credentials_are_described_one_at_a_step_however_many_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name used to be compared with all names of the request, which took minutes for 60,000."""

    class Name(str):
        __slots__ = ()
        compared = 0

        def __eq__(self, other: object) -> bool:
            Name.compared += 1
            return isinstance(other, str) and str.__eq__(self, other)

        __hash__ = str.__hash__

    users = [UserName(name=Name(f"name-{number}")) for number in range(ITEMS)]
    counter = PerStep()
    monkeypatch.setattr(described, "_undescribed", counter.counting(described._undescribed))
    request = m.DescribeUserScramCredentialsRequest(users=[*users, users[0]])
    told = counter.run(InProcess().controller.steps(request, 0, 1, 0)).response
    assert isinstance(told, m.DescribeUserScramCredentialsResponse)
    errors = [one.error_code for one in told.results]
    assert errors == [Error.DUPLICATE_RESOURCE, *[Error.RESOURCE_NOT_FOUND] * (ITEMS - 1)]
    assert Name.compared <= 2 * ITEMS
    assert counter.most == 1


# Through a replica


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """The entries in answers to ElectLeaders."""
    counter = Counted()
    monkeypatch.setattr(refusals, "PartitionResult", counter.counting(refusals.PartitionResult))
    return counter


def told_of(quorum: Quorum, asked: int, error: Error) -> None:
    """The answer to a request for the elections of `MANY` partitions: the same error for each."""
    answer = quorum.net.answers[asked]
    assert isinstance(answer, m.ElectLeadersResponse)
    assert answer.error_code == error
    [topic] = answer.replica_election_results
    assert [one.partition_id for one in topic.partition_result] == list(range(MANY))
    assert {one.error_code for one in topic.partition_result} == {error}


def test_a_follower_refuses_a_long_request_in_turns_and_answers_others_meanwhile(entries: Counted) -> None:
    quorum = Quorum(entries)
    net = quorum.net
    follower = min(node for node in net.processes if node != quorum.leader)
    net.settle()
    entries.begin()
    asked = net.request(follower, elections(MANY))
    net.settle()
    assert asked not in net.answers, "it takes several turns"
    other = net.request(follower, elections(1))
    net.settle()
    assert asked not in net.answers
    assert other in net.answers
    net.until_ms(lambda: asked in net.answers)
    told_of(quorum, asked, Error.NOT_CONTROLLER)
    assert entries.total == MANY + 1
    assert entries.most <= PER_TURN


def test_a_leader_that_resigns_refuses_long_requests_in_turns(entries: Counted) -> None:
    """One was decided on, and waits for a commit; the other waits for its decision."""
    quorum = Quorum(entries)
    net, former = quorum.net, quorum.leader
    waiting_for_followers(quorum, allocation(quorum), 1)
    decided = net.request(former, elections(MANY))
    net.until_ms(lambda: not quorum.is_busy)
    assert decided not in net.answers
    first, second = net.request(former, elections(MANY)), net.request(former, elections(MANY))
    net.settle()
    assert quorum.is_busy
    entries.begin()
    net.step(former, Resign(net.processes[former].replica.core.epoch))
    assert not net.processes[former].may_stop, "a node that stops refuses them before it ends"
    net.until_ms(lambda: net.answers.keys() >= {decided, first, second})
    for asked in (decided, first, second):
        told_of(quorum, asked, Error.NOT_CONTROLLER)
    assert entries.total == 3 * MANY
    assert entries.most <= PER_TURN
    assert net.processes[former].may_stop
