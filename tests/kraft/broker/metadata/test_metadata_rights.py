"""A client learns of the topics, coordinators and configurations that it may see, and of no others."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from broker_requests import CLUSTER_ID, answer_to, asked, image_at, no_replicas
from kraft.access.authorizer import AclOperation, AclResource, AuthorizerSettings
from kraft.access.tokens import TokenSettings
from kraft.broker.requests import Requests
from kraft.config.described import Secret
from kraft.handling.rights import Rights
from kraft.handling.settings import RequestSettings
from kraft.wire import Send
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.records.metadata import AccessControlEntryRecord, DelegationTokenRecord
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid
from support.broker.request_brokers import due_of
from support.kraft.denials import taken
from transport.protocol.apis import ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.inbound import Principal
from transport.protocol.messages import (
    CreateDelegationTokenRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeDelegationTokenRequest,
    DescribeTopicPartitionsRequest,
    DescribeUserScramCredentialsRequest,
    FindCoordinatorRequest,
    ListConfigResourcesRequest,
    MetadataRequest,
)
from transport.protocol.messages.describe_configs import DescribeConfigsResource
from transport.protocol.messages.describe_delegation_token import DescribeDelegationTokenOwner
from transport.protocol.messages.describe_topic_partitions import TopicRequest
from transport.protocol.messages.metadata import MetadataRequestTopic

NOW = 1_795_387_601_600
SEEN, HIDDEN = "alerts-probe", "alerts-compact"
CLUSTER = "kafka-cluster"
HMAC_BYTES = 64
ALICE = Principal("User", "alice")
NOT_ASKED = -(2**31)
Right = tuple[AclOperation, AclResource, str]
SEES: Right = (AclOperation.DESCRIBE, AclResource.TOPIC, SEEN)


TOKENS = TokenSettings(secret=Secret("of-all-nodes"))


def image_with(*rights: Right) -> MetadataImage:
    """The recorded cluster, in which ALICE has these rights, and in which three users have tokens."""
    image = image_at(NOW)
    delta = MetadataDelta(image)
    for owner, renewers in (("User:alice", ()), ("User:bob", ("User:alice",)), ("User:carol", ())):
        token = DelegationTokenRecord(owner=owner, requester=owner, renewers=renewers, token_id=f"of-{owner[5:]}")
        delta.replay(token, image.end.offset)
    for number, (operation, resource, name) in enumerate(rights):
        record = AccessControlEntryRecord(
            id=Uuid(bytes([7, number] * 8)),
            resource_type=resource,
            resource_name=name,
            pattern_type=3,
            principal="User:alice",
            host="*",
            operation=operation,
            permission_type=3,
        )
        delta.replay(record, image.end.offset + number)
    return delta.apply(OffsetAndEpoch(epoch=image.end.epoch, offset=image.end.offset + len(rights)))


class Asking:
    """ALICE asks a broker, and the metadata of the broker has some rights of hers."""

    def __init__(self, *rights: Right, creates: bool = False) -> None:
        self.image = image_with(*rights)
        self.rights = Rights(AuthorizerSettings(frozenset(("User:admin",))))
        settings = RequestSettings(
            broker_id=101,
            cluster_id=CLUSTER_ID,
            auto_create_topics=creates,
            tokens=TOKENS,
        )
        self.requests = Requests(no_replicas(), settings, Random(7), self.rights)

    def answer(self, message: Message, version: int | None = None, principal: Principal = ALICE) -> Any:
        key = ApiKey(message.__schema__.api_key or 0)
        highest = ALL_APIS[key].versions.highest if version is None else version
        return answer_to(self.requests, replace(asked(message, highest, key), principal=principal), self.image)

    def denied(self) -> list[tuple[AclOperation, str]]:
        return [(one.operation, one.name) for one in taken(self.rights.audited)]


def named(*names: str, **fields: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **fields)


def codes(answer: Any) -> dict[str, int]:
    return {one.name: one.error_code for one in answer.topics}


def bits(*operations: AclOperation) -> int:
    return sum(1 << one for one in operations)


def test_metadata_of_all_topics_leaves_out_those_that_the_client_may_not_describe():
    asking = Asking(SEES)
    assert codes(asking.answer(MetadataRequest(topics=None))) == {SEEN: 0}
    assert asking.denied() == []


def test_metadata_does_not_tell_whether_a_topic_without_the_right_exists():
    asking = Asking(SEES)
    answer = asking.answer(named(SEEN, HIDDEN, "absent"))
    failed = Error.TOPIC_AUTHORIZATION_FAILED
    assert codes(answer) == {SEEN: 0, HIDDEN: failed, "absent": failed}
    assert {one.topic_id for one in answer.topics if one.error_code} == {Uuid.ZERO}
    assert asking.denied() == [(AclOperation.DESCRIBE, HIDDEN), (AclOperation.DESCRIBE, "absent")]


def test_metadata_by_id_names_no_topic_without_the_right():
    asking = Asking(SEES)
    ids = [asking.image.topics[name].id for name in (SEEN, HIDDEN)]
    answer = asking.answer(MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=one) for one in ids]))
    assert [(one.name, one.topic_id, one.error_code) for one in answer.topics] == [
        (SEEN, ids[0], 0),
        (None, ids[1], Error.TOPIC_AUTHORIZATION_FAILED),
    ]


def test_the_operations_in_the_metadata_are_those_of_the_client():
    read = (AclOperation.READ, AclResource.TOPIC, SEEN)
    asking = Asking(read, (AclOperation.ALTER, AclResource.CLUSTER, CLUSTER))
    request = named(SEEN, include_topic_authorized_operations=True, include_cluster_authorized_operations=True)
    answer = asking.answer(request, version=10)
    assert answer.topics[0].topic_authorized_operations == bits(AclOperation.READ, AclOperation.DESCRIBE)
    assert answer.cluster_authorized_operations == bits(AclOperation.ALTER, AclOperation.DESCRIBE)
    assert Asking(read).answer(request, version=10).cluster_authorized_operations == 0


@pytest.mark.parametrize(
    ("right", "created"),
    [
        ((AclOperation.DESCRIBE, AclResource.TOPIC, "new"), False),
        ((AclOperation.CREATE, AclResource.TOPIC, "new"), True),
        ((AclOperation.CREATE, AclResource.CLUSTER, CLUSTER), True),
    ],
)
def test_a_missing_topic_is_created_for_a_client_that_may_create_it(right: Right, created: bool):
    asking = Asking((AclOperation.READ, AclResource.TOPIC, "new"), right, creates=True)
    answer = asking.answer(named("new", allow_auto_topic_creation=True))
    error = Error.UNKNOWN_TOPIC_OR_PARTITION if created else Error.TOPIC_AUTHORIZATION_FAILED
    assert codes(answer) == {"new": error}
    sent = [one for one in due_of(asking.requests, 0) if isinstance(one, Send)]
    assert len(sent) == created


def test_a_description_of_topics_ends_with_those_that_are_denied():
    asking = Asking(SEES)
    topics = [TopicRequest(name=name) for name in (HIDDEN, SEEN, "absent")]
    request = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=2000)
    answer = asking.answer(request)
    failed = Error.TOPIC_AUTHORIZATION_FAILED
    found = [(one.name, one.error_code) for one in answer.topics]
    assert found == [(SEEN, 0), ("absent", failed), (HIDDEN, failed)]
    assert [one.topic_authorized_operations for one in answer.topics] == [
        bits(AclOperation.DESCRIBE),
        NOT_ASKED,
        NOT_ASKED,
    ]
    everything = asking.answer(replace(request, topics=[]))
    assert codes(everything) == {SEEN: 0}


def test_the_cursor_of_a_description_names_a_topic_that_the_client_may_describe():
    last = max(image_at(NOW).topics)
    asking = Asking(SEES, (AclOperation.DESCRIBE, AclResource.TOPIC, last))
    limit = len(asking.image.topics[SEEN].partitions)
    answer = asking.answer(DescribeTopicPartitionsRequest(topics=[], response_partition_limit=limit))
    assert codes(answer) == {SEEN: 0}
    assert answer.next_cursor.topic_name == last


def test_every_client_may_describe_the_cluster_and_sees_its_own_operations():
    asking = Asking((AclOperation.DESCRIBE, AclResource.CLUSTER, CLUSTER))
    request = DescribeClusterRequest(endpoint_type=1, include_cluster_authorized_operations=True)
    answer = asking.answer(request)
    assert (answer.error_code, len(answer.brokers)) == (0, 3)
    assert answer.cluster_authorized_operations == bits(AclOperation.DESCRIBE)
    assert Asking().answer(request).cluster_authorized_operations == 0


def test_configurations_need_the_right_to_describe_them():
    asking = Asking((AclOperation.DESCRIBE_CONFIGS, AclResource.TOPIC, SEEN))
    resources = [DescribeConfigsResource(resource_type=2, resource_name=name) for name in (SEEN, HIDDEN)]
    resources.append(DescribeConfigsResource(resource_type=4, resource_name="101"))
    answer = asking.answer(DescribeConfigsRequest(resources=resources))
    assert [(one.resource_name, one.error_code, bool(one.configs)) for one in answer.results] == [
        (SEEN, 0, True),
        (HIDDEN, Error.TOPIC_AUTHORIZATION_FAILED, False),
        ("101", Error.CLUSTER_AUTHORIZATION_FAILED, False),
    ]


@pytest.mark.parametrize(
    ("request_", "operation"),
    [
        (
            DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1),
            "DESCRIBE",
        ),
        (DescribeUserScramCredentialsRequest(users=None), "DESCRIBE"),
        (DescribeClientQuotasRequest(components=[]), "DESCRIBE_CONFIGS"),
        (ListConfigResourcesRequest(resource_types=[]), "DESCRIBE_CONFIGS"),
    ],
)
def test_a_request_about_the_whole_cluster_needs_a_right_on_the_cluster(request_: Message, operation: str):
    denied = Asking(SEES)
    assert denied.answer(request_).error_code == Error.CLUSTER_AUTHORIZATION_FAILED
    assert denied.denied() == [(AclOperation[operation], CLUSTER)]
    allowed = Asking((AclOperation[operation], AclResource.CLUSTER, CLUSTER))
    assert allowed.answer(request_).error_code == 0
    assert denied.answer(request_, principal=Principal("User", "admin")).error_code == 0


@pytest.mark.parametrize("version", [0, 3, 4, 6])
def test_a_coordinator_is_searched_for_groups_and_transactions_that_the_client_may_describe(version: int):
    asking = Asking((AclOperation.READ, AclResource.GROUP, "g"))
    found = []
    for key_type, key in ((0, "g"), (0, "other"), (1, "t")):
        if (version, key_type) == (0, 1):
            continue
        answer = asking.answer(FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key]), version)
        found.append((answer.coordinators[0] if version >= 4 else answer).error_code)
    assert found == [
        Error.NONE,
        Error.GROUP_AUTHORIZATION_FAILED,
        *([Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] if version else []),
    ]


def test_the_coordinator_of_a_share_group_is_for_brokers():
    answer = Asking().answer(FindCoordinatorRequest(key_type=2, coordinator_keys=["s"]))
    assert [one.error_code for one in answer.coordinators] == [Error.CLUSTER_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("principal", [Principal(), Principal("User", "alice", is_token=True)])
def test_a_client_that_has_not_logged_in_itself_gets_no_token(principal: Principal):
    asking = Asking()
    answer = asking.answer(CreateDelegationTokenRequest(), principal=principal)
    assert answer.error_code == Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert list(due_of(asking.requests, 0)) == []


@pytest.mark.parametrize(
    ("rights", "owners", "seen"),
    [
        ((), None, ["of-alice", "of-bob"]),
        (
            ((AclOperation.DESCRIBE, AclResource.DELEGATION_TOKEN, "of-carol"),),
            None,
            ["of-alice", "of-bob", "of-carol"],
        ),
        (((AclOperation.DESCRIBE_TOKENS, AclResource.USER, "User:carol"),), ["carol"], ["of-carol"]),
        ((), ["bob", "carol"], ["of-bob"]),
        ((), [], []),
    ],
)
def test_a_client_sees_its_own_tokens_and_those_that_it_may_describe(
    rights: tuple[Right, ...], owners: list[str] | None, seen: list[str]
):
    wanted = None if owners is None else [DescribeDelegationTokenOwner("User", name) for name in owners]
    answer = Asking(*rights).answer(DescribeDelegationTokenRequest(owners=wanted))
    assert (answer.error_code, [one.token_id for one in answer.tokens]) == (0, seen)
    assert all(len(one.hmac) == HMAC_BYTES for one in answer.tokens)
