"""Four real clusters as their own tools described them at the end, against what the files of any controller say."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest

from metadata_log import replay
from metadata_log.image import MetadataImage, ResourceType, reassigning
from replayed_logs import disk_of
from support.real_data import archive

NODES = [(cluster, node) for cluster in ("static3", "dynamic3", "failover", "old39") for node in (1, 2, 3)] + [
    ("static3 of 4.4", 1),
    ("static3 of 4.4", 2),
    *(("dynamic3 of 4.4", node) for node in (1, 2, 3)),
]
"""Node 3 of the static cluster of 4.4 has only a snapshot of a later time."""
IN_TOPICS = {
    "message.max.bytes": "max.message.bytes",
    "log.retention.ms": "retention.ms",
    "log.segment.bytes": "segment.bytes",
}
"""What a topic calls a configuration that it takes over from the brokers."""
RESOURCES = {2: "TOPIC", 4: "CLUSTER", 3: "GROUP", 5: "TRANSACTIONAL_ID", 6: "DELEGATION_TOKEN", 7: "USER"}
OPERATIONS = {3: "READ", 4: "WRITE", 8: "DESCRIBE", 9: "CLUSTER_ACTION", 13: "CREATE_TOKENS"}
MECHANISMS = {1: "SCRAM_SHA_256", 2: "SCRAM_SHA_512"}


@cache
def state(cluster: str) -> dict[str, Any]:
    name, _, release = cluster.partition(" of ")
    found: dict[str, Any] = json.loads(archive("release44" if release else "history")[f"{name}/state.json"])
    return found


@cache
def image_of(cluster: str, node: int) -> MetadataImage:
    """The image in a controller's files at the moment at which the tools were asked."""
    name, prefix = ("static3", "") if cluster == "static3" else ("clusters", f"/{cluster}")
    if cluster.endswith(" of 4.4"):
        name, prefix = "release44", f"/{cluster.removesuffix(' of 4.4')}"
    at = state(cluster)["as_of"]["high_watermark_after"] - 1
    return replay(f"{prefix}/nodes/c{node}", at, disk=disk_of(name))


@pytest.fixture(params=NODES, ids=lambda given: f"{given[0]}-c{given[1]}")
def history(request: pytest.FixtureRequest) -> tuple[MetadataImage, dict[str, Any]]:
    cluster, node = request.param
    return image_of(cluster, node), state(cluster)


History = tuple[MetadataImage, dict[str, Any]]


def test_topics(history: History) -> None:
    image, described = history
    ours = {
        name: {
            "topic_id": str(image.topics[name].id),
            "partitions": [
                {
                    "partition": number,
                    "leader": partition.leader,
                    "replicas": list(partition.replicas),
                    "isr": sorted(partition.isr),
                    "elr": sorted(partition.elr),
                    "last_known_elr": list(partition.last_known_elr),
                }
                for number, partition in enumerate(image.topics[name].partitions)
            ],
        }
        for name in image.topics
    }
    theirs = described["describeTopics"]
    for topic in theirs.values():
        for partition in topic["partitions"]:
            partition["isr"].sort()
            partition["elr"].sort()
    assert ours == {name: {key: one[key] for key in ("topic_id", "partitions")} for name, one in theirs.items()}
    assert described["listReassign"] == {}
    assert list(reassigning(image.topics)) == []


def test_brokers(history: History) -> None:
    image, described = history
    # Brokers that are fenced are shown only where the tool asked for them, and then as fenced ones.
    nodes = described["describeCluster"]["nodes"]
    ours = {broker.id: broker.rack for broker in image.brokers.by_id.values() if broker.is_active}
    assert ours == {one["id"]: one["rack"] for one in nodes if not one.get("fenced", False)}
    assert {one["id"] for one in nodes} <= set(image.brokers.by_id)


def test_features(history: History) -> None:
    image, described = history
    found = re.findall(
        r"([a-z.]+)=FinalizedVersionRange\[min_version_level:\d+, max_version_level:(\d+)\]", str(described["features"])
    )
    # The level of kraft.version is in control records.
    theirs = {name: int(level) for name, level in found if name != "kraft.version"}
    assert dict(image.features.all_levels()) == theirs
    # The tools of one cluster asked while its leader wrote NoOpRecords; the others stood still.
    moment = described["as_of"]
    assert image.end.offset == moment["high_watermark_after"]
    assert moment["high_watermark_before"] - 1 <= described["features"]["epoch"] <= image.end.offset - 1
    assert moment["high_watermark_before"] == image.end.offset or described == state("static3 of 4.4")


def test_configs(history: History) -> None:
    """Whatever is set, on the resource itself or taken over from the brokers'."""
    image, described = history
    for resource, theirs in described["describeConfigs"].items():
        kind, _, name = resource.partition(":")
        own = dict(image.configs.of((ResourceType[kind], name)))
        cluster = dict(image.configs.of((ResourceType.BROKER, "")))
        if kind == "BROKER":
            assert theirs == {**cluster, **own}, resource
        else:
            # One broker describes a topic, and adds its own configuration.
            brokers = [dict(image.configs.of((ResourceType.BROKER, str(node)))) for node in image.brokers.by_id]
            assert theirs in [
                {
                    **{
                        IN_TOPICS.get(key, key): value
                        for key, value in given.items()
                        if key in IN_TOPICS or key == "min.insync.replicas"
                    },
                    **own,
                }
                for given in [cluster, *({**cluster, **one} for one in brokers)]
            ], resource
    # Their tools were asked about the topics that are there; old39 has kept the configuration of one that is not.
    ours = {name for kind, name in image.configs.by_resource if kind == ResourceType.TOPIC and name in image.topics}
    assert {f"TOPIC:{name}" for name in ours} <= described["describeConfigs"].keys()


def test_acls(history: History) -> None:
    image, described = history
    ours = [
        {
            "rtype": RESOURCES[acl.resource_type],
            "name": acl.resource_name,
            "pattern": {3: "LITERAL", 4: "PREFIXED"}[acl.pattern_type],
            "principal": acl.principal,
            "host": acl.host,
            "op": OPERATIONS[acl.operation],
            "perm": {2: "DENY", 3: "ALLOW"}[acl.permission_type],
        }
        for acl in image.acls.by_id.values()
    ]
    theirs = [] if "error" in described["describeAcls"] else described["describeAcls"]
    assert sorted(ours, key=str) == sorted(({key: one[key] for key in ours[0]} for one in theirs), key=str)


def test_quotas(history: History) -> None:
    image, described = history
    ours = {
        "{" + ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity) + "}": dict(quotas)
        for entity, quotas in image.quotas.by_entity.items()
    }
    theirs = {
        entity: {key: float(value) for key, value in re.findall(r"([a-z_]+)=([0-9.E]+)", quotas)}
        for entity, quotas in described["describeQuotas"].items()
    }
    assert ours == theirs


def test_scram(history: History) -> None:
    image, described = history
    # Kafka's `ScramDelta.apply` drops a mechanism when the removal of a user leaves it empty, and then adds the other
    # users of the same delta to the dropped map. The brokers 102 and 103 of this cluster replayed both in one delta
    # after a restart; their snapshots lack this credential, which the log and the controllers' snapshots have.
    lost = {("alice", "SCRAM_SHA_256", 4096)} if described == state("static3 of 4.4") else set()
    ours = {
        (name, MECHANISMS[mechanism], credential.iterations)
        for name, credentials in image.scram.by_user.items()
        for mechanism, credential in credentials.items()
    }
    theirs = {
        (name, mechanism, int(iterations))
        for name, shown in described["describeScram"].items()
        for mechanism, iterations in re.findall(r"mechanism=(\w+), iterations=(\d+)", shown)
    }
    assert theirs.isdisjoint(lost)
    assert ours == theirs | lost


def test_tokens(history: History) -> None:
    image, described = history
    theirs = [] if "error" in described["tokenDescribe"] else described["tokenDescribe"]
    ours = [
        f"TokenInformation{{owner={token.owner}, tokenRequester={token.requester}, "
        f"renewers=[{', '.join(token.renewers)}], issueTimestamp={token.issue_timestamp}, "
        f"maxTimestamp={token.max_timestamp}, expiryTimestamp={token.expiration_timestamp}, "
        f"tokenId='{token.token_id}'}}"
        for token in image.tokens.by_id.values()
    ]
    assert sorted(ours) == sorted(theirs)


def test_controllers(history: History) -> None:
    """Each voter that registered; every one did from 3.7 on."""
    image, described = history
    assert {one["id"] for one in described["quorum"]["voters"]} <= set(image.controllers.by_id)


def test_producer_ids() -> None:
    """Six times a client produced, each time at a broker without ids or started anew: a block of 1,000 for each."""
    operations = json.loads(archive("history")["static3/operations.json"])["operations"]
    assert sum(one["op"] == "produce" for one in operations) == 6
    assert image_of("static3", 1).producer_ids.next_producer_id == 6000
