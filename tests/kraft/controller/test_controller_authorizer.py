"""Authorization: rules, the operation that each request needs, and the answers to denied requests."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from kraft.access.authorizer import (
    DENY,
    LITERAL,
    PREFIXED,
    AclOperation,
    AclResource,
    Authorizer,
    AuthorizerSettings,
)
from kraft.access.caller import Caller, host_of, host_of_peer
from kraft.access.items import authorize_items
from kraft.access.permissions import CLUSTER_OPERATIONS
from kraft.access.tokens import TokenSettings
from kraft.config.described import Secret, described_settings
from kraft.config.keys import STANDARD_AUTHORIZER
from kraft.controller import QuorumController
from kraft.controller.decision.request_context import AdminSettings
from kraft.controller.envelope import api_key_of
from kraft.node.logging import NodeLog
from kraft.replica.interface.actions import Redirect
from kraft.replica.rpc.api_versions import QUORUM_APIS
from kraft.replica.rpc.refusals import refuse_quorum_request
from kraft.wire import Answer, WireRequest
from metadata_log.image import Acl, AclsImage
from metadata_log.serde import Message, schema_of
from metadata_log.serde.codec import finished
from metadata_log.types import Uuid, random_uuid
from support.differential.authorizer_stories import AUTHORIZER_STORIES, kafkas_answers, principal_bytes, said
from support.differential.controller_sides import NEARBY, InProcess, Side, plain
from support.differential.controller_stories import A, create, envelope, heartbeat, reassignments, register, told, topic
from support.differential.random_rules import random_rule
from support.kraft.denials import taken
from support.kraft.known_quorum import served
from transport.protocol.apis import APIS, ApiKey
from transport.protocol.errors import Error
from transport.protocol.headers import decode_response, encode_response
from transport.protocol.messages import (
    BrokerHeartbeatRequest,
    CreateTopicsRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EnvelopeRequest,
    EnvelopeResponse,
    VoteResponse,
)

ALLOW = 3
ALICE = Caller("User", "alice", host="10.0.0.1")
SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin",
    "allow.everyone.if.no.acl.found": "true",
    "delegation.token.secret.key": "a-secret",
}
ADMIN = AdminSettings(
    authorizer=AuthorizerSettings(frozenset(("User:admin",)), allows_without_acl=True),
    tokens=TokenSettings(secret=Secret("a-secret")),
)
STRICT = AdminSettings(authorizer=AuthorizerSettings(frozenset(("User:admin",))))


class WithQuorum(InProcess):
    """Refuses requests of the quorum as a replica does, and those that are allowed as of another cluster."""

    def ask(self, request: Message, version: int) -> Message:
        """As the controller, or for it."""
        key = schema_of(type(request)).api_key
        assert key is not None
        wire = WireRequest(
            request_id=1, api_key=key, version=version, message=request, listener="CONTROLLER", peer="127.0.0.1:9"
        )
        host = served(self.controller)
        if isinstance(request, EnvelopeRequest) and api_key_of(request) in QUORUM_APIS:
            action = host.on_request(wire, self.now_ms)
            if isinstance(action, Redirect):
                return EnvelopeResponse(error_code=Error.INCONSISTENT_CLUSTER_ID)
            assert isinstance(action, Answer)
            return action.message
        if key not in QUORUM_APIS:
            return super().ask(request, version)
        denial = host.denial(wire)
        if denial is None:
            return VoteResponse(error_code=Error.INCONSISTENT_CLUSTER_ID)
        refused = refuse_quorum_request(wire, denial)
        return decode_response(ApiKey(key), version, encode_response(key, version, 0, refused))[1]


def test_authorization_answers_equal_kafkas() -> None:
    """Of requests of the quorum that are allowed is only known that they are."""
    own_settings = tuple(described_settings(SETTINGS))
    side = Side(WithQuorum(admin=ADMIN, max_idle_interval_ms=0, own_settings=own_settings).ask)
    for name, story in AUTHORIZER_STORIES.items():
        for number, (ours, kafkas) in enumerate(zip(plain(said(side, name)), kafkas_answers()[name], strict=True)):
            if ours.get("error_code") == Error.INCONSISTENT_CLUSTER_ID:
                assert kafkas["error_code"] != Error.CLUSTER_AUTHORIZATION_FAILED
            else:
                assert ours == kafkas, f"{name}, step {number}, by {story[number].principal or 'anonymous'}"


def test_a_refused_request_writes_nothing() -> None:
    process = InProcess(admin=STRICT, max_idle_interval_ms=0)
    before = len(process.batches)
    (answer,) = told(Side(process.ask), [register(A)])
    assert answer["error_code"] == Error.CLUSTER_AUTHORIZATION_FAILED
    told(Side(process.ask), [create(topic("t", [A])), heartbeat(A), envelope(create(topic("t", [A])))])
    assert len(process.batches) == before


def test_denied_requests_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A topic allowed by its own rule, and not by one of the cluster, logs no denial."""
    process = InProcess(admin=STRICT)
    taken(process.controller.audited)
    names = ["fine", "bad\nname"]
    rules = Authorizer(AuthorizerSettings(), AclsImage().put(Uuid.ZERO, rule(AclOperation.CREATE, "fine")))
    request = CreateTopicsRequest(topics=[topic(name, [A]) for name in names])
    context = structs.replace(process.controller._request_context(7, 0, ALICE), authorizer=rules)
    assert finished(authorize_items(context, context.committed, request)).request == structs.replace(
        request, topics=request.topics[:1]
    )
    (denial,) = taken(process.controller.audited)
    assert taken(process.controller.audited) == []
    assert (denial.caller, denial.operation, denial.name) == (ALICE, AclOperation.CREATE, names[1])
    with caplog.at_level("WARNING", "kraft.node"):
        NodeLog(1, lambda: 0).trace(denial)
    assert caplog.messages == [
        "denied node=1 principal='User:alice' host=10.0.0.1 operation=CREATE resource='TOPIC:bad\\nname' "
        "rule='DefaultDeny' held_back=0"
    ]


# Rules


def rule(operation: AclOperation, name: str = "t", **changes: Any) -> Acl:
    fields: dict[str, Any] = {
        "pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "permission_type": ALLOW,
    } | changes
    return Acl(resource_type=AclResource.TOPIC, resource_name=name, operation=operation, **fields)


def with_rules(*acls: Acl, **settings: bool) -> Authorizer:
    image = AclsImage()
    for number, acl in enumerate(acls):
        image = image.put(Uuid(bytes([number]) * 16), acl)
    return Authorizer(AuthorizerSettings(frozenset(("User:root",)), **settings), image)


@pytest.mark.parametrize(
    ("acls", "is_allowed"),
    [
        ((), False),
        ((rule(AclOperation.READ),), True),
        ((rule(AclOperation.ALL),), True),
        ((rule(AclOperation.WRITE),), False),
        ((rule(AclOperation.READ, principal="User:*"),), True),
        ((rule(AclOperation.READ, principal="Group:alice"),), False),
        ((rule(AclOperation.READ, host="10.0.0.1"),), True),
        ((rule(AclOperation.READ, host="10.0.0.2"),), False),
        ((rule(AclOperation.READ, "*"),), True),
        ((rule(AclOperation.READ, "*", pattern_type=PREFIXED),), False),
        ((rule(AclOperation.READ, "t", pattern_type=PREFIXED),), True),
        ((rule(AclOperation.READ), rule(AclOperation.READ, "*", permission_type=DENY)), False),
        ((rule(AclOperation.READ), rule(AclOperation.ALL, permission_type=DENY, principal="User:*")), False),
        ((rule(AclOperation.READ), rule(AclOperation.READ, permission_type=DENY, host="10.0.0.2")), True),
    ],
)
def test_read_access_to_a_topic_follows_from_its_acls(acls: tuple[Acl, ...], is_allowed: bool) -> None:
    verdict = with_rules(*acls).authorize(ALICE, AclOperation.READ, AclResource.TOPIC, "t")
    assert verdict.is_allowed is is_allowed


def test_a_decision_names_its_acl_as_kafkas_audit_log_does() -> None:
    authorizer = with_rules(rule(AclOperation.READ, permission_type=DENY))
    asked = (AclOperation.READ, AclResource.TOPIC, "t")
    assert str(authorizer.authorize(Caller("User", "root"), *asked)) == "SuperUser"
    assert str(authorizer.authorize(ALICE, *asked)) == (
        "MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=t, patternType=LITERAL, principal=User:alice, "
        "host=*, operation=READ, permissionType=DENY])"
    )
    assert str(authorizer.authorize(Caller("User", "bob"), *asked)) == "DefaultDeny"
    assert str(with_rules(allows_without_acl=True).authorize(ALICE, *asked)) == "DefaultAllow"


@given(st.integers(min_value=0))
def test_the_acl_index_is_the_same_from_snapshot_or_changes(seed: int) -> None:
    """On a node that has begun with a snapshot as on one that has seen every change."""
    rng = Random(seed)
    image = AclsImage()
    for _ in range(40):
        known = sorted(image.by_id)
        if known and rng.random() < 0.4:
            image = image.remove(rng.choice(known))
        else:
            acl_id = rng.choice(known) if known and rng.random() < 0.1 else random_uuid(rng)
            image = image.put(acl_id, random_rule(rng))
    anew = AclsImage()
    for acl_id in sorted(image.by_id, reverse=True):
        anew = anew.put(acl_id, image.by_id[acl_id])
    assert anew == image
    assert all(image.has(acl) for acl in image.by_id.values())


def test_any_topic_may_be_read_unless_every_topic_allowed_is_denied() -> None:
    def may_read_any(*acls: Acl) -> bool:
        return with_rules(*acls).authorize_by_type(ALICE, AclOperation.READ, AclResource.TOPIC)

    prefix_denied = rule(AclOperation.READ, "t", pattern_type=PREFIXED, permission_type=DENY)
    assert may_read_any(rule(AclOperation.READ))
    assert not may_read_any(rule(AclOperation.READ), prefix_denied)
    assert may_read_any(rule(AclOperation.READ), prefix_denied, rule(AclOperation.READ, "other"))
    assert not may_read_any(rule(AclOperation.ALL), rule(AclOperation.READ, "*", permission_type=DENY))
    assert not may_read_any(rule(AclOperation.DESCRIBE))


# Before the rules are known, and on a controller that is not active


def standby() -> QuorumController:
    """Our controller before anything has been committed."""
    return QuorumController(InProcess(admin=STRICT).controller.settings)


def forwarded(controller: QuorumController, principal: str) -> Error:
    """The answer to a broker's envelope with a listing of reassignments."""
    (build, _) = envelope(reassignments(), principal=principal_bytes(principal))
    answer = controller.handle(build(Side(InProcess().ask)), 0, 1, 0, Caller("User", "admin", host="10.0.0.9")).response
    return Error(getattr(answer, "error_code"))  # noqa: B009


def test_before_acls_are_loaded_only_super_users_are_served() -> None:
    controller = standby()
    assert controller.denial(ApiKey.VOTE, Caller("User", "admin")) is None
    denial = controller.denial(ApiKey.VOTE, NEARBY)
    assert denial is not None
    assert denial.error == Error.UNKNOWN_SERVER_ERROR
    controller.on_caught_up()
    denial = controller.denial(ApiKey.VOTE, NEARBY)
    assert denial is not None
    assert denial.error == Error.CLUSTER_AUTHORIZATION_FAILED


def test_a_standby_denies_a_request_before_it_names_the_active_controller() -> None:
    controller = standby()
    controller.on_caught_up()
    request = BrokerHeartbeatRequest(broker_id=A)
    refused = controller.handle(request, 2, 1, 0, NEARBY).response
    redirected = controller.handle(request, 2, 1, 0, Caller("User", "admin")).response
    assert getattr(refused, "error_code") == Error.CLUSTER_AUTHORIZATION_FAILED  # noqa: B009
    assert getattr(redirected, "error_code") == Error.NOT_CONTROLLER  # noqa: B009


def test_a_standby_serves_enveloped_requests_that_any_controller_answers() -> None:
    controller = standby()
    controller.on_caught_up()
    assert forwarded(controller, "User:admin") == Error.NONE


# The principal and host of a request


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("10.0.0.1:4000", "10.0.0.1"),
        ("[::1]:4000", "0:0:0:0:0:0:0:1"),
        ("[2001:db8::ff:0]:4000", "2001:db8:0:0:0:0:ff:0"),
        ("[::ffff:10.0.0.1]:4000", "10.0.0.1"),
        ("node-1:9093", "node-1"),
        ("node-1", "node-1"),
        ("", ""),
    ],
)
def test_hosts_are_written_as_java_writes_them(peer: str, host: str) -> None:
    assert host_of_peer(peer) == host


def test_addresses_of_envelopes_have_4_or_16_bytes() -> None:
    assert host_of(bytes((10, 0, 0, 1))) == "10.0.0.1"
    assert host_of(bytes(15) + b"\x01") == "0:0:0:0:0:0:0:1"
    with pytest.raises(ValueError, match="does not appear"):
        host_of(bytes(5))


def test_every_controller_api_has_a_required_permission_or_a_stated_exemption() -> None:
    judged_by_item = {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.DESCRIBE_CONFIGS,
    }
    of_its_owner = {
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    }
    before_login = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    assert set(APIS) == judged_by_item | of_its_owner | before_login | set(CLUSTER_OPERATIONS)


def test_the_quorum_is_described_to_principals_that_may_describe_the_cluster() -> None:
    wire = WireRequest(
        request_id=1, api_key=ApiKey.DESCRIBE_QUORUM, version=2, message=DescribeQuorumRequest(), listener="CONTROLLER"
    )
    denial = InProcess(admin=STRICT).controller.denial(ApiKey.DESCRIBE_QUORUM, NEARBY)
    assert denial is not None
    assert refuse_quorum_request(wire, denial) == DescribeQuorumResponse(
        error_code=Error.CLUSTER_AUTHORIZATION_FAILED, error_message="Cluster authorization failed."
    )
