"""Requests of different principals under ACLs, on which two controllers with an authorizer are compared.

A step is sent directly, by an anonymous client, or in an envelope, for a principal at an address.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from msgspec import Struct

from kraft.access.authorizer import CLUSTER_NAME, LITERAL, PREFIXED, AclOperation, AclResource
from metadata_log.serde import Message, encode
from metadata_log.types import Uuid
from support import DATA
from support.differential.controller_sides import Side
from support.differential.controller_stories import BROKER as BROKER_CONFIG
from support.differential.controller_stories import (
    GROUP,
    LOGGER,
    METRICS,
    PREFERRED,
    SET,
    A,
    B,
    Step,
    arrives,
    assign,
    configure,
    create,
    delete,
    delete_by,
    elections,
    envelope,
    grow,
    heartbeat,
    isr,
    latest,
    producer_ids,
    reassign,
    reassignments,
    register,
    told,
    topic,
    unregister,
)
from support.differential.controller_stories import TOPIC as TOPIC_CONFIG
from transport.protocol import messages as m
from transport.protocol.errors import Error
from transport.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_user_scram_credentials,
    begin_quorum_epoch,
    create_acls,
    delete_acls,
    describe_configs,
    describe_quorum,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    update_features,
    vote,
)
from transport.protocol.messages.principal import DefaultPrincipalData

LOOPBACK: Final = bytes((127, 0, 0, 1))
ELSEWHERE: Final = bytes((10, 0, 0, 1))
SIX: Final = bytes.fromhex("20010db8000000000000000000000001")
MAPPED: Final = bytes(10) + b"\xff\xff" + ELSEWHERE
DENY, ALLOW = 2, 3
ANY, MATCH = 1, 2
DIRECTLY: Final = ""
PROBES: Final = 5000
TOPIC, CLUSTER = AclResource.TOPIC, AclResource.CLUSTER


class Asked(Struct, frozen=True):
    """A step, its principal, and the fields of the answer that are compared: all, unless some are named."""

    principal: str
    step: Step
    address: bytes = LOOPBACK
    only: tuple[str, ...] = ()
    is_token: bool = False


def principal_bytes(principal: str, *, is_token: bool = False) -> bytes:
    """A principal as a broker writes it into an envelope."""
    kind, _, name = principal.partition(":")
    return b"\0\0" + encode(DefaultPrincipalData(type=kind, name=name, token_authenticated=is_token), 0)


@cache
def kafkas_answers() -> dict[str, list[dict[str, Any]]]:
    """The answers of Apache Kafka 4.4.0 to each story, by its name."""
    with gzip.open(DATA / "authorizer_answers.json.gz") as file:
        found: dict[str, list[dict[str, Any]]] = json.load(file)
        return found


def said(side: Side, name: str) -> list[dict[str, Any]]:
    """The answers of a side to the story of this name."""
    answers = []
    for number, asked in enumerate(AUTHORIZER_STORIES[name]):
        answer = comparable(say(side, asked))
        answers.append({name: answer[name] for name in asked.only} if asked.only else answer)
        if any(
            result["error_code"] == Error.NONE for result in answer.get("results", answer.get("filter_results", ()))
        ):
            _wait_for_rules(side, f"{list(AUTHORIZER_STORIES).index(name)}-{number}")
    return answers


def say(side: Side, asked: Asked) -> dict[str, Any]:
    """The answer to one caller."""
    step = asked.step
    if asked.principal != DIRECTLY:
        principal = principal_bytes(asked.principal, is_token=asked.is_token)
        step = envelope(step, principal=principal, address=asked.address)
    (answer,) = told(side, [step])
    return answer


def _wait_for_rules(side: Side, name: str) -> None:
    """Kafka's authorizer loads rules a little after the answer to their creation: wait until one more rule applies."""
    prober = f"User:probe-{name}"
    say(side, Asked("User:admin", rules(rule(prober, AclOperation.DELETE, f"probe-{name}"))))
    probe = Asked(prober, delete(f"probe-{name}"))

    for _ in range(PROBES):
        answer = say(side, probe)
        # A controller that no longer opens envelopes has applied the last rule, too.
        if "responses" not in answer or answer["responses"][0]["error_code"] != Error.TOPIC_AUTHORIZATION_FAILED:
            return
    raise AssertionError(f"{prober} is still not allowed what it was allowed")


def comparable(value: Any) -> Any:
    """Kafka names its request object in the text of a refusal, ours the API and the principal."""
    if isinstance(value, dict):
        return {name: comparable(one) for name, one in value.items()}
    if isinstance(value, list):
        return [comparable(one) for one in value]
    if isinstance(value, str):
        return re.sub(r"^Request .* needs (\w+) permission\.$", r"It needs \1 permission.", value)
    return value


# Requests about rules, and those that no other story has


def rule(
    principal: str,
    operation: AclOperation,
    name: str = CLUSTER_NAME,
    resource: AclResource | None = None,
    *,
    permission: int = ALLOW,
    pattern: int = LITERAL,
    host: str = "*",
) -> create_acls.AclCreation:
    """A rule about a topic, or without a name about the cluster."""
    return create_acls.AclCreation(
        resource_type=resource or (CLUSTER if name == CLUSTER_NAME else TOPIC),
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def rules(*creations: create_acls.AclCreation) -> Step:
    return latest(lambda side: m.CreateAclsRequest(creations=list(creations)))


def about(principal: str) -> dict[str, Any]:
    """The fields of a filter for every rule about a principal."""
    return {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": principal,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }


def forget(principal: str) -> Step:
    wanted = delete_acls.DeleteAclsFilter(**about(principal))
    return latest(lambda side: m.DeleteAclsRequest(filters=[wanted]))


def described_rules(principal: str) -> Step:
    return latest(lambda side: m.DescribeAclsRequest(**about(principal)))


def described_cluster(*, with_operations: bool = False, version: int = 2) -> Step:
    def build(side: Side) -> Message:
        return m.DescribeClusterRequest(
            endpoint_type=2, include_cluster_authorized_operations=with_operations, include_fenced_brokers=False
        )

    return build, version


def described_configs(
    *resources: tuple[int, str], keys: Sequence[str] = ("retention.ms", "consumer.session.timeout.ms")
) -> Step:
    asked = [
        describe_configs.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys))
        for kind, name in resources
    ]
    return latest(lambda side: m.DescribeConfigsRequest(resources=asked))


def replaced(kind: int, name: str, **values: str) -> Step:
    configs = [alter_configs.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in values.items()]
    resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return latest(lambda side: m.AlterConfigsRequest(resources=[resource], validate_only=True))


def quota(user: str, rate: float) -> Step:
    entry = alter_client_quotas.AlterClientQuotasRequestEntryData(
        entity=[alter_client_quotas.AlterClientQuotasRequestEntityData(entity_type="user", entity_name=user)],
        ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=rate)],
    )
    return latest(lambda side: m.AlterClientQuotasRequest(entries=[entry]))


def scram(user: str) -> Step:
    deletion = alter_user_scram_credentials.ScramCredentialDeletion(name=user, mechanism=1)
    return latest(lambda side: m.AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[]))


def feature(version: int = 2) -> Step:
    update = update_features.FeatureUpdateKey(feature="share.version", max_version_level=1, upgrade_type=1)
    return lambda side: m.UpdateFeaturesRequest(feature_updates=[update], validate_only=version > 0), version


def token(owner: str | None = None) -> Step:
    return latest(
        lambda side: m.CreateDelegationTokenRequest(
            owner_principal_type="User" if owner else None, owner_principal_name=owner, max_lifetime_ms=-1
        )
    )


def registered() -> Step:
    """Requests of a controller of another quorum, so that a refusal changes nothing."""
    return latest(lambda side: m.ControllerRegistrationRequest(controller_id=9, incarnation_id=Uuid(b"\x09" * 16)))


# Requests of the quorum, which change nothing here: of another cluster


def _fetched(version: int) -> Step:
    partition = fetch.FetchPartition(partition=0, current_leader_epoch=0, fetch_offset=0)
    asked = fetch.FetchTopic(topic="__cluster_metadata", topic_id=Uuid.METADATA_TOPIC, partitions=[partition])
    if version < 13:
        asked = fetch.FetchTopic(topic="__cluster_metadata", partitions=[partition])
    else:
        asked = fetch.FetchTopic(topic_id=Uuid.METADATA_TOPIC, partitions=[partition])
    changes: dict[str, Any] = {"cluster_id": "another"} if version > 11 else {}
    return lambda side: m.FetchRequest(topics=[asked], max_wait_ms=0, **changes), version


def _voted(version: int) -> Step:
    partition = vote.VoteRequestPartitionData(partition_index=0, replica_epoch=1, replica_id=2)
    asked = vote.VoteRequestTopicData(topic_name="__cluster_metadata", partitions=[partition])
    return lambda side: m.VoteRequest(cluster_id="another", topics=[asked]), version


def _begun(version: int) -> Step:
    partition = begin_quorum_epoch.BeginQuorumEpochRequestPartitionData(partition_index=0, leader_id=2)
    asked = begin_quorum_epoch.BeginQuorumEpochRequestTopicData(topic_name="__cluster_metadata", partitions=[partition])
    return lambda side: m.BeginQuorumEpochRequest(cluster_id="another", topics=[asked]), version


def _ended(version: int) -> Step:
    partition = end_quorum_epoch.EndQuorumEpochRequestPartitionData(partition_index=0, leader_id=2)
    asked = end_quorum_epoch.EndQuorumEpochRequestTopicData(topic_name="__cluster_metadata", partitions=[partition])
    return lambda side: m.EndQuorumEpochRequest(cluster_id="another", topics=[asked]), version


def _snapshot(version: int) -> Step:
    partition = fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(current_leader_epoch=1)
    asked = fetch_snapshot.FetchSnapshotRequestTopicSnapshot(name="__cluster_metadata", partitions=[partition])
    return lambda side: m.FetchSnapshotRequest(cluster_id="another", topics=[asked]), version


def _described_quorum(version: int) -> Step:
    asked = describe_quorum.DescribeQuorumRequestTopicData(
        topic_name="__cluster_metadata", partitions=[describe_quorum.DescribeQuorumRequestPartitionData()]
    )
    return lambda side: m.DescribeQuorumRequest(topics=[asked]), version


QUORUM: Final = [
    *(_fetched(version) for version in (4, 12, 13, 18)),
    *(_voted(version) for version in (0, 1, 2)),
    *(_begun(version) for version in (0, 1)),
    *(_ended(version) for version in (0, 1)),
    *(_snapshot(version) for version in (0, 1)),
]
OF_BROKERS: Final = [
    register(A),
    heartbeat(A),
    isr("shown", [A, B], by=A),
    assign(A, Uuid(b"\x10" + bytes(14) + b"\x65"), ("shown", 0)),
    producer_ids(A),
]
ADMINISTRATION: Final[dict[str, list[Step]]] = {
    "User:alters": [
        forget("User:absent"),
        rules(rule("User:also", AclOperation.READ, "also"), rule("User:also", AclOperation.READ, "")),
        elections(PREFERRED, ("shown", [0])),
        elections(PREFERRED, ("shown", [0]), version=0),
        reassign("shown", (0, None)),
        scram("scram-user"),
        feature(),
        feature(0),
        unregister(77),
    ],
    "User:describes": [described_rules("User:also"), reassignments(("shown", [0])), reassignments()],
    "User:alters-configs": [quota("u", 5.0)],
}
"""Requests that need an operation on the cluster, by the principal that is allowed that operation and nothing else."""

MADE_FIRST: Final = [
    rule("User:ANONYMOUS", AclOperation.CLUSTER_ACTION, host="127.0.0.1"),
    rule("User:alters", AclOperation.ALTER),
    rule("User:describes", AclOperation.DESCRIBE),
    rule("User:alters-configs", AclOperation.ALTER_CONFIGS),
    rule("User:acts", AclOperation.CLUSTER_ACTION),
    rule("User:creates", AclOperation.CREATE),
    rule("User:deletes", AclOperation.DELETE),
    rule("User:everything", AclOperation.ALL),
    rule("User:unrelated", AclOperation.READ, "*"),
    rule("User:unrelated", AclOperation.READ, "*", AclResource.GROUP),
    rule("User:unrelated", AclOperation.CREATE_TOKENS, "*", AclResource.USER),
    *(
        rule("User:alice", operation, "alice-", pattern=PREFIXED)
        for operation in (AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS)
    ),
    rule("User:alice", AclOperation.DELETE, "alice-keeps", permission=DENY),
    rule("User:*", AclOperation.CREATE, "alice-forbidden-", pattern=PREFIXED, permission=DENY),
    rule("User:*", AclOperation.READ, "public"),
    rule("User:bob", AclOperation.DELETE, "shown", host="10.0.0.1"),
    rule("User:bob", AclOperation.ALTER, "six", host="2001:db8:0:0:0:0:0:1"),
    rule("User:carol", AclOperation.ALTER_CONFIGS, "g-", AclResource.GROUP, pattern=PREFIXED),
    rule("User:dora", AclOperation.CREATE_TOKENS, "User:alice", AclResource.USER),
    rule("User:mallory", AclOperation.ALL, "*", permission=DENY),
    rule("User:mallory", AclOperation.CREATE, "mallory-made"),
    rule("User:reads", AclOperation.READ, "public-", pattern=PREFIXED),
    rule("User:blind", AclOperation.DELETE, "shown"),
    rule("User:blind", AclOperation.DESCRIBE, "shown", permission=DENY),
]


def by(principal: str, *steps: Step, **how: Any) -> list[Asked]:
    """These steps, taken by one caller."""
    return [Asked(principal, step, **how) for step in steps]


OWN_SETTINGS: Final = (
    "authorizer.class.name",
    "super.users",
    "allow.everyone.if.no.acl.found",
    "early.start.listeners",
    "delegation.token.secret.key",
)
ERRORS: Final = ("error_code",)
AUTHORIZED: Final = ("error_code", "error_message", "cluster_authorized_operations")

AUTHORIZER_STORIES: Final[dict[str, list[Asked]]] = {
    "without rules everything is allowed": [
        *by(DIRECTLY, *arrives(A), *arrives(B)),
        *by(
            "User:eve", create(topic("shown", [A, B]), topic("hidden", [A, B]), topic("public", [A]), topic("six", [A]))
        ),
        *by("User:eve", create(topic("gone", [A])), delete("gone"), described_rules("User:eve")),
        *by("User:eve", described_rules("User:eve"), reassignments(), quota("u", 4.0)),
        *by(DIRECTLY, described_cluster(with_operations=True), only=AUTHORIZED),
        *by(DIRECTLY, described_configs((BROKER_CONFIG, "1"), keys=OWN_SETTINGS)),
        *by(DIRECTLY, rules(*MADE_FIRST)),
    ],
    "the cluster's administration needs an operation each": [
        *(
            asked
            for allowed, steps in ADMINISTRATION.items()
            for principal in (allowed, "User:everything", "User:eve", "User:acts", "Group:alters")
            for asked in by(principal, *steps)
        ),
        *by("User:admin", *ADMINISTRATION["User:alters"]),
        *by("User:alters", reassignments(), described_rules("User:also")),
        *by("User:eve", *(_described_quorum(version) for version in (0, 2))),
        *by("User:describes", *(_described_quorum(version) for version in (0, 2)), only=ERRORS),
        *by(DIRECTLY, *ADMINISTRATION["User:alters"], *ADMINISTRATION["User:describes"]),
        *by(DIRECTLY, *ADMINISTRATION["User:alters-configs"]),
    ],
    "brokers need to act for the cluster": [
        *by("User:eve", producer_ids(A)),
        *by("User:acts", producer_ids(A)),
        *by(DIRECTLY, *OF_BROKERS[1:]),
        *by(DIRECTLY, *QUORUM),
    ],
    "the cluster is described to principals that may alter it": [
        *by(DIRECTLY, described_cluster(), described_cluster(version=1)),
        *by(DIRECTLY, *(_described_quorum(version) for version in (0, 1, 2))),
        *by("User:everything", rules(rule("User:ANONYMOUS", AclOperation.ALTER))),
        *by(DIRECTLY, described_cluster(with_operations=True), only=AUTHORIZED),
        *by(DIRECTLY, *(_described_quorum(version) for version in (0, 1, 2)), only=ERRORS),
        *by("User:everything", forget("User:ANONYMOUS")),
        *by(DIRECTLY, heartbeat(A)),
    ],
    "topics are created by allowed principals": [
        *by("User:creates", create(topic("by-creator", [A]), topic("by-creator-too", [B]))),
        *by("User:alice", create(topic("alice-makes", [A]), topic("eve-makes", [A]), topic("alice-keeps", [A]))),
        *by("User:alice", create(topic("alice-forbidden-1", [A]), topic("alice-makes", [A]), topic("public", [A]))),
        *by("User:alice", create(topic("alice-twice", [A]), topic("alice-twice", [A]), topic("no", [A]))),
        *by("User:eve", create(topic("twice", [A]), topic("twice", [A]), topic("__cluster_metadata", [A]))),
        *by("User:eve", create(topic("e", [A]), version=4), create(topic("e", [A]), version=2)),
        *by("User:eve", create(topic("e", [A]), validate_only=True)),
        *by("User:alice", create(topic("alice-old", [A]), version=4), create(topic("alice-bad", [99]))),
        *by("User:alice", create(topic("alice-huge", count=10_001, factor=1), topic("not-hers", count=1, factor=1))),
        *by("User:mallory", create(topic("mallory-made", [A]))),
        *by("User:unrelated", create(topic("by-unrelated", [A]))),
        *by("User:admin", create(topic("by-admin", [A]))),
        *by(DIRECTLY, create(topic("by-anonymous", [A]))),
    ],
    "partitions are added by principals that may alter the topic": [
        *by(
            "User:alice",
            grow("alice-makes", 2, [B]),
            grow("shown", 2, [A, B]),
            grow("nothing", 2),
            grow("shown", 3, twice=True),
        ),
        *by("User:eve", grow("shown", 3, twice=True), grow("public", 2, [B], version=0)),
        *by("User:bob", grow("six", 2, [B])),
        *by("User:bob", grow("six", 2, [B]), address=SIX),
    ],
    "configurations are changed by allowed principals": [
        *by("User:alice", configure(TOPIC_CONFIG, "alice-makes", ("retention.ms", SET, "5"))),
        *by("User:alice", configure(TOPIC_CONFIG, "shown", ("retention.ms", SET, "5"))),
        *by("User:alice", configure(TOPIC_CONFIG, "shown", ("retention.ms", SET, "5"), twice=True)),
        *by("User:alice", configure(TOPIC_CONFIG, "nothing", ("retention.ms", SET, "5"))),
        *by("User:alice", configure(BROKER_CONFIG, str(A), ("log.retention.ms", SET, "5"))),
        *by("User:alters-configs", configure(BROKER_CONFIG, str(A), ("log.retention.ms", SET, "5"))),
        *by("User:alters-configs", configure(BROKER_CONFIG, "", ("log.retention.ms", SET, "5"))),
        *by("User:alters-configs", configure(METRICS, "m", ("interval.ms", SET, "500"))),
        *by("User:alters-configs", configure(TOPIC_CONFIG, "shown", ("retention.ms", SET, "5"))),
        *by("User:eve", configure(METRICS, "m", ("interval.ms", SET, "600"))),
        *by("User:eve", configure(LOGGER, "1", ("root", SET, "INFO"))),
        *by("User:eve", configure(77, "x", ("k", SET, "v"))),
        *by("User:carol", configure(GROUP, "g-1", ("consumer.session.timeout.ms", SET, "46000"))),
        *by("User:carol", configure(GROUP, "h-1", ("consumer.session.timeout.ms", SET, "46000"))),
        *by("User:alice", replaced(TOPIC_CONFIG, "alice-makes", retention_ms="6")),
        *by(
            "User:eve",
            replaced(TOPIC_CONFIG, "shown", retention_ms="6"),
            replaced(GROUP, "g-1"),
            replaced(METRICS, "m"),
        ),
        *by("User:eve", replaced(BROKER_CONFIG, ""), replaced(LOGGER, "1"), replaced(77, "x")),
    ],
    "configurations are shown to allowed principals": [
        *by(DIRECTLY, described_configs((TOPIC_CONFIG, "shown"), (GROUP, "g-1"), (BROKER_CONFIG, ""), (METRICS, "m"))),
        *by(DIRECTLY, described_configs((TOPIC_CONFIG, "nothing"), (LOGGER, "1"))),
        *by("User:everything", rules(rule("User:ANONYMOUS", AclOperation.ALTER_CONFIGS, "shown"))),
        *by(
            "User:everything",
            rules(rule("User:ANONYMOUS", AclOperation.DESCRIBE_CONFIGS, "g", AclResource.GROUP, pattern=PREFIXED)),
        ),
        *by(DIRECTLY, described_configs((TOPIC_CONFIG, "shown"), (TOPIC_CONFIG, "hidden"), (GROUP, "g-1"))),
    ],
    "tokens for others are made by allowed principals": [
        *by("User:dora", token("alice"), token("bob"), token(), only=ERRORS),
        *by("User:alice", token("alice"), token("dora"), only=ERRORS),
        *by("User:dora", token("alice"), is_token=True, only=ERRORS),
        *by("User:admin", token("bob"), only=ERRORS),
    ],
    "envelopes are opened for principals that may act for the cluster": [
        *by(DIRECTLY, envelope(reassignments(), principal=None)),
        *by(DIRECTLY, envelope(reassignments(), principal=b"\0\0")),
        *by(DIRECTLY, envelope(reassignments(), principal=b"\0\x09" + principal_bytes("User:admin")[2:])),
        *by(DIRECTLY, envelope(reassignments(), address=b"\x01\x02\x03")),
        *by(DIRECTLY, envelope(reassignments(), principal=None, address=b"")),
        *by(DIRECTLY, envelope(reassignments(), principal=principal_bytes("User:admin"), cut=5)),
        *by(DIRECTLY, envelope(described_cluster(), principal=principal_bytes("User:admin"))),
        *by(DIRECTLY, envelope(heartbeat(A), principal=principal_bytes("User:admin"))),
        *by(DIRECTLY, envelope(envelope(reassignments()), principal=principal_bytes("User:admin"))),
        *by(DIRECTLY, envelope(described_configs((BROKER_CONFIG, "")), principal=principal_bytes("User:admin"))),
    ],
    "topics are deleted by allowed principals": [
        *by("User:eve", delete("shown", "public", "hidden", "nothing")),
        *by("User:eve", delete_by(("shown", None), (None, "shown"), (None, "public"), (None, ""), ("nothing", None))),
        *by("User:reads", delete_by((None, "public"), ("public", None), ("public-nothing", None), ("other", None))),
        *by("User:eve", delete_by((None, "hidden"), (None, "hidden"), ("shown", None), ("shown", None))),
        *by("User:eve", delete_by(("shown", "shown"), (None, None))),
        *by("User:alice", delete("alice-makes", "alice-keeps", "alice-nothing", "shown")),
        *by("User:alice", delete_by((None, "alice-keeps"), ("alice-old", None), (None, "alice-old"))),
        *by("User:bob", delete("shown")),
        *by("User:bob", delete_by(("shown", None), (None, "shown"))),
        *by("User:blind", delete("shown")),
        *by("User:blind", delete_by((None, "shown"))),
        *by("User:mallory", delete("mallory-made", "public")),
        *by("User:everything", create(topic("shown", [A, B]))),
        *by("User:bob", delete("shown"), address=MAPPED),
        *by("User:deletes", delete("public", "hidden", "nothing")),
    ],
    "a denied principal may do nothing": [
        *by("User:admin", create(topic("shown", [A, B]))),
        *by("User:admin", rules(rule("User:ANONYMOUS", AclOperation.CLUSTER_ACTION, permission=DENY))),
        *by(DIRECTLY, *OF_BROKERS, register(B), registered()),
        *by(DIRECTLY, *QUORUM),
        *by(DIRECTLY, envelope(reassignments()), envelope(reassignments(), principal=None)),
    ],
}

NAMED_LIKE_THE_WILDCARD: Final = Asked("User:*", reassignments())
"""Kafka fails on a principal with the name of the wildcard principal of rules; our controller accepts the principal."""
