"""Everything that was done to four real clusters is found in their histories: at its time, with its cause.

Each operation of the lists is accounted for: by a row, or by a reason why a metadata log cannot show it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from history_stories import CLUSTERS, Row, operations, real_story

SLACK_MS = 30
"""An operation that is answered is noted when the answer has come, and was not begun before the one noted before it."""
LATER_MS = 30_000
"""What follows from a kill, a stop or a start follows within so much."""
PROCESSES = {"start", "kill -9", "stop (SIGTERM)", "pause (SIGSTOP)"}

NOT_IN_A_LOG = {
    "format": "happens before the first record",
    "observe quorum": "reads",
    "quorum": "reads",
    "features": "reads",
    "describeCluster": "reads",
    "describeTopics": "reads",
    "describeConfigs": "reads",
    "describeScram": "reads",
    "describeAcls": "reads",
    "tokenDescribe": "reads",
    "listReassign": "reads",
    "listConfigResources": "reads",
    "final state recorded": "reads",
    "produce": "writes to topics, not to the metadata",
    "consume": "reads from topics",
    "wipe": "removes the files of a node that does not run",
    "continue (SIGCONT)": "the node goes on as a follower",
    "restart leaders until controller 3, whose log start has moved, leads": "a headline of what follows",
}


class RecordedOperations:
    """A cluster's views, with questions about a stretch of time."""

    def __init__(self, cluster: str) -> None:
        self.views = real_story(cluster)
        self.cluster = cluster
        done = operations(cluster)
        times = [0, *(one["t_ms"] for one in done)]
        self.operations = [{**one, "previous_ms": before} for one, before in zip(done, times, strict=False)]
        [self.over] = [one["n"] for one in self.operations[-30:] if one["op"] == "final state recorded"]
        """From here on the cluster is taken apart: its controllers first, so that no record reports the rest."""

    def began(self, view: str, low: int, high: int, **values: Any) -> list[Row]:
        """The rows that begin within a time and have these values."""
        rows = self.views[view]
        clock = "valid_from" if not rows or "valid_from" in rows[0] else "timestamp"
        return [row for row in rows if low <= row[clock] <= high and has(row, values)]

    def ended(self, view: str, low: int, high: int, **values: Any) -> list[Row]:
        """The rows that end within a time and have these values."""
        rows = self.views[view]
        return [row for row in rows if row["valid_to"] and low <= row["valid_to"] <= high and has(row, values)]

    def leader_at(self, time_ms: int) -> int | None:
        """The active controller at a time."""
        for row in self.views["quorum_epochs"]:
            if row["valid_from"] <= time_ms and (row["valid_to"] is None or time_ms < row["valid_to"]):
                return int(row["leader_id"])
        return None


def has(row: Row, values: dict[str, Any]) -> bool:
    return all(row[name] in value if isinstance(value, set) else row[name] == value for name, value in values.items())


Found = list[Row] | str
"""Rows that show an operation, or why there is none."""


def answered(operation: Row) -> tuple[int, int]:
    return operation["previous_ms"] - SLACK_MS, operation["t_ms"] + SLACK_MS


def oks(operation: Row) -> set[str]:
    """The operations that were answered with ok; the rest of a request was refused, and must not be in the log."""
    result = operation["result"].get("result")
    return {name for name, answer in result.items() if answer == "ok"} if isinstance(result, dict) else set()


def refused(operation: Row) -> str:
    """Nothing of a request was granted, so that nothing may be in the log."""
    assert not oks(operation), operation
    return "was refused"


def all_of(parts: Iterable[list[Row]]) -> list[Row]:
    """All the rows, if there are some for each part; else none."""
    found = list(parts)
    return [row for part in found for row in part] if all(found) else []


def node_event(story: RecordedOperations, operation: Row) -> Found:
    node, op, at = operation["args"]["node"], operation["op"], operation["t_ms"]
    low, high = at - 50, at + LATER_MS
    if op == "start":
        kind = "broker" if node > 100 else "controller"
        of = {kind: node, "cause": {f"{kind}-registered", f"{kind}-restarted"}}
        return story.began(f"{kind}_history", low, high, **of)
    if node <= 100:
        if operation["n"] > story.over and len(story.began("controller_elections", at, high)) == 0:
            return "no controller is left to write about it"
        if story.leader_at(at) != node:
            return "a standby: only its next start is in the log"
        return [row for row in story.began("controller_elections", at, high) if row["leader_id"] != node][:1]
    if operation["n"] > story.over:
        return "no controller is left to write about it"
    causes = {
        "kill -9": {"session-timeout", "broker-fenced"},
        "stop (SIGTERM)": {"controlled-shutdown", "broker-fenced"},
    }[op]
    return story.began("fencing", low, high, broker=node, cause=causes)[:1]


def create_topics(story: RecordedOperations, operation: Row) -> Found:
    args = operation["args"]
    if args.get("validateOnly"):
        return "was only validated"
    names = oks(operation)
    found = [story.began("topic_history", *answered(operation), topic=name, cause="topic-created") for name in names]
    for topic in args.get("topics", ()):
        if topic["name"] in names:
            for key, value in (topic.get("configs") or {}).items():
                of = {"resource_name": topic["name"], "key": key, "value": value, "cause": "config-set"}
                found.append(story.began("config_history", *answered(operation), **of))
    return all_of(found) if names else refused(operation)


def doomed_topics(story: RecordedOperations, operation: Row) -> Found:
    """Sent to a leader that was about to lose them; the client sent them again to the next."""
    at = operation["t_ms"]
    names = oks(operation)
    return all_of(story.began("topic_history", at - LATER_MS, at + LATER_MS, topic=name) for name in names)


def delete_topics(story: RecordedOperations, operation: Row) -> Found:
    ended = (
        story.ended("topic_history", *answered(operation), topic=name, end_cause="topic-deleted")
        for name in oks(operation)
    )
    return all_of(ended)


def create_partitions(story: RecordedOperations, operation: Row) -> Found:
    if operation["args"].get("validateOnly"):
        return "was only validated"
    counts = {name: one["count"] for name, one in operation["args"]["topics"].items() if name in oks(operation)}
    found = [
        story.began("topic_history", *answered(operation), topic=name, partitions=count, cause="partitions-added")
        for name, count in counts.items()
    ]
    return all_of(found) if counts else "was refused"


def alter_configs(story: RecordedOperations, operation: Row) -> Found:
    if operation["args"].get("validateOnly"):
        return "was only validated"
    found = []
    for resource in operation["args"]["resources"]:
        name = f"ConfigResource(type={resource['type']}, name='{resource['name']}')"
        if name not in oks(operation):
            continue
        for verb, key, *value in resource["ops"]:
            of = {"resource_type": resource["type"], "resource_name": resource["name"], "key": key}
            if verb == "DELETE":
                found.append(story.ended("config_history", *answered(operation), end_cause="config-removed", **of))
            else:
                if verb == "SET":
                    of["value"] = value[0]
                found.append(story.began("config_history", *answered(operation), cause="config-set", **of))
    return all_of(found) if found else refused(operation)


def quotas(story: RecordedOperations, operation: Row) -> Found:
    found = []
    for entry in operation["args"]["entries"]:
        named = [f"{kind}={'null' if name is None else name}" for kind, name in entry["entity"].items()]
        answers = {re.sub(r"[{}]", "", name.partition("entries=")[2].rstrip(")")): name for name in oks(operation)}
        if not any(sorted(text.split(", ")) == sorted(named) for text in answers):
            continue
        entity = ", ".join(sorted(part.replace("null", "<default>") for part in named))
        for key, value in entry["values"].items():
            of = {"entity": entity, "key": key}
            if value is None:
                found.append(story.ended("quota_history", *answered(operation), end_cause="quota-removed", **of))
            else:
                found.append(story.began("quota_history", *answered(operation), cause="quota-set", value=value, **of))
    return all_of(found) if found else refused(operation)


def scram(story: RecordedOperations, operation: Row) -> Found:
    found = []
    for user in operation["args"]["users"]:
        if user["user"] not in oks(operation):
            continue
        of = {"user": user["user"], "mechanism": user["mech"]}
        if user.get("delete"):
            found.append(story.ended("scram_history", *answered(operation), end_cause="credential-removed", **of))
        else:
            of["iterations"] = user.get("iterations", 4096)
            found.append(story.began("scram_history", *answered(operation), cause="credential-set", **of))
    return all_of(found) if found else refused(operation)


def create_acls(story: RecordedOperations, operation: Row) -> Found:
    """A rule that is there already is answered with ok and not written again."""
    found = []
    for acl in operation["args"]["acls"]:
        of = {
            "resource_type": acl["rtype"],
            "resource_name": acl["name"],
            "pattern_type": acl.get("pattern", "LITERAL"),
            "principal": acl["principal"],
            "operation": acl["op"],
            "permission": acl.get("perm", "ALLOW"),
            "host": acl.get("host", "*"),
        }
        low, high = answered(operation)
        known = [row for row in story.views["acl_history"] if has(row, of) and row["valid_from"] < low]
        found.append(known or story.began("acl_history", low, high, cause="acl-created", **of))
    return all_of(found)


def delete_acls(story: RecordedOperations, operation: Row) -> Found:
    found = []
    for filter_ in operation["args"]["acls"]:
        columns = {"rtype": "resource_type", "name": "resource_name", "principal": "principal"}
        of = {columns[key]: value for key, value in filter_.items()}
        found.append(story.ended("acl_history", *answered(operation), end_cause="acl-removed", **of))
    return all_of(found)


def tokens(story: RecordedOperations, operation: Row) -> Found:
    low, high = answered(operation)
    match operation["op"]:
        case "tokenCreate":
            [token_id] = re.findall("tokenId='([^']+)'", operation["result"]["result"])
            return story.began("token_history", low, high, token_id=token_id, cause="token-created")
        case "tokenRenew":
            expires = int(operation["result"]["result"])
            return story.began("token_history", low, high, expires=expires, cause="token-renewed")
        case _:
            return story.ended("token_history", low, high, end_cause="token-removed")


def update_features(story: RecordedOperations, operation: Row) -> Found:
    if operation["args"].get("validateOnly"):
        return "was only validated"
    found = []
    causes = {"UPGRADE": {"feature-finalized", "feature-upgraded"}, "SAFE_DOWNGRADE": {"feature-downgraded"}}
    for name, (level, kind) in operation["args"]["features"].items():
        if name not in oks(operation):
            continue
        if level == 0:
            of = {"feature": name, "end_cause": "feature-removed"}
            found.append(story.ended("feature_history", *answered(operation), **of))
        else:
            of = {"feature": name, "level": level, "cause": causes[kind]}
            found.append(story.began("feature_history", *answered(operation), **of))
    return all_of(found) if found else refused(operation)


def elect(story: RecordedOperations, operation: Row) -> Found:
    preferred = operation["args"]["type"] == "PREFERRED"
    changes = story.began(
        "leadership_changes",
        *answered(operation),
        cause="preferred-election" if preferred else "unclean-election",
        preferred={True} if preferred else {True, False},
        clean=preferred,
    )
    elected = {f"{row['topic']}-{row['partition']}" for row in changes}
    assert elected == oks(operation), operation["n"]
    return changes if elected else "was refused: no election was needed"


def reassign(story: RecordedOperations, operation: Row) -> Found:
    found = []
    for name, target in operation["args"]["partitions"].items():
        if name not in oks(operation):
            continue
        topic, _, number = name.rpartition("-")
        of = {"topic": topic, "partition": int(number)}
        if target is None:
            of["outcome"] = "cancelled"
            found.append(story.ended("reassignments", *answered(operation), end_cause="reassignment-cancelled", **of))
        else:
            causes = {"reassignment-started", "reassignment-completed"}
            of["to_replicas"] = tuple(target)
            found.append(story.began("reassignments", *answered(operation), cause=causes, **of))
    return all_of(found)


def unregister(story: RecordedOperations, operation: Row) -> Found:
    if not operation["result"]["ok"]:
        return "was refused"
    broker = operation["args"]["id"]
    return story.ended("broker_history", *answered(operation), broker=broker, end_cause="broker-unregistered")


def voters(story: RecordedOperations, operation: Row) -> Found:
    if not operation["result"]["ok"]:
        return "was refused"
    of = {"voter": operation["args"]["id"], "directory_id": operation["args"]["dir"]}
    if operation["op"] == "addVoter":
        return story.began("voter_history", *answered(operation), cause="voter-added", **of)
    return story.ended("voter_history", *answered(operation), end_cause="voter-removed", **of)


def change_endpoint(story: RecordedOperations, operation: Row) -> Found:
    """The voter tells the leader of it when it has started again."""
    at, node, port = operation["t_ms"], operation["args"]["node"], operation["args"]["port"]
    rows = story.began("voter_history", at, at + LATER_MS, voter=node, cause="voter-updated")
    return [row for row in rows if row["endpoints"] == (f"CONTROLLER://127.0.0.1:{port}",)]


def alter_log_dirs(story: RecordedOperations, operation: Row) -> Found:
    found = []
    for move in operation["args"]["moves"]:
        topic, _, number = move["tp"].rpartition("-")
        of = {"topic": topic, "partition": int(number), "cause_broker": move["broker"], "cause": "directory-assigned"}
        low, _ = answered(operation)
        found.append(story.began("partition_history", low, low + LATER_MS, **of))
    return all_of(found)


Matcher = Callable[[RecordedOperations, Row], Found]
MATCHERS: dict[str, Matcher] = {
    **dict.fromkeys(PROCESSES, node_event),
    "createTopics": create_topics,
    "createTopics (sent when only the doomed leader was alive; the client may have retried it later)": doomed_topics,
    "deleteTopics": delete_topics,
    "createPartitions": create_partitions,
    "alterConfigs": alter_configs,
    "quotas": quotas,
    "scram": scram,
    "createAcls": create_acls,
    "deleteAcls": delete_acls,
    "tokenCreate": tokens,
    "tokenRenew": tokens,
    "tokenExpire": tokens,
    "updateFeatures": update_features,
    "elect": elect,
    "reassign": reassign,
    "unregister": unregister,
    "addVoter": voters,
    "removeVoter": voters,
    "change endpoint": change_endpoint,
    "alterLogDirs": alter_log_dirs,
}

SHOWN = {"failover": 34, "static3": 103, "dynamic3": 34, "old39": 32}
"""How many operations have rows that show them; the others have a reason."""


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_every_operation_is_found_at_its_time_with_its_cause(cluster: str) -> None:
    story = RecordedOperations(cluster)
    missing, shown = [], 0
    for operation in story.operations:
        found = NOT_IN_A_LOG.get(operation["op"]) or MATCHERS[operation["op"]](story, operation)
        if not found:
            missing.append((operation["n"], operation["op"], str(operation["args"])[:200]))
        shown += isinstance(found, list)
    assert missing == []
    assert shown == SHOWN[cluster]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_active_controller_is_the_one_that_the_tools_saw(cluster: str) -> None:
    story = RecordedOperations(cluster)
    seen = [one for one in story.operations if one["op"] == "observe quorum" and one["result"].get("leader")]
    assert seen
    for operation in seen:
        assert story.leader_at(operation["t_ms"]) == operation["result"]["leader"], operation["n"]


WITHOUT_OPERATION = {
    ("static3", 103, 1694): "the active controller had stood still: the broker found the new one too late",
}
"""Fencings without an operation: cluster, broker, offset."""


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_every_fencing_has_its_operation(cluster: str) -> None:
    """The other way round: the histories report no change without an operation."""
    story = RecordedOperations(cluster)
    for row in story.views["fencing"]:
        if row["cause"] == "broker-registered":
            continue
        op = {"session-timeout": {"kill -9"}, "controlled-shutdown": {"stop (SIGTERM)"}}.get(
            row["cause"], {"kill -9", "stop (SIGTERM)"}
        )
        done = [
            one
            for one in story.operations
            if one["op"] in op
            and one["args"]["node"] == row["broker"]
            and one["t_ms"] - SLACK_MS <= row["valid_from"] <= one["t_ms"] + LATER_MS
        ]
        assert done or (cluster, row["broker"], row["valid_from_offset"]) in WITHOUT_OPERATION, row


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_every_election_of_a_controller_has_its_operation(cluster: str) -> None:
    """An operation stopped, killed, paused or removed the controller before."""
    story = RecordedOperations(cluster)
    for row in story.views["controller_elections"]:
        before = row["previous_leader_id"]
        done = [
            one
            for one in story.operations
            if one["op"] in PROCESSES | {"removeVoter"}
            and (one["args"].get("node", one["args"].get("id")) == before or before is None)
            and one["t_ms"] - SLACK_MS <= row["timestamp"] <= one["t_ms"] + LATER_MS
        ]
        assert done, row


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_every_change_in_real_logs_has_a_known_cause(cluster: str) -> None:
    """In real logs from their first record on, every change has a cause."""
    for view, rows in real_story(cluster).items():
        assert [row for row in rows if row.get("cause") in ("unknown", "snapshot")] == [], view
