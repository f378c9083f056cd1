"""The checklist from Kafka 4.3.1 to 4.4.0 has all that a comparison by hand found, and nothing unexplained.

`SPECIFIED` was written from that comparison, not from the output of the tool: what it says is on the left, the lines
that have to be there are on the right, as regular expressions.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from kraft.metrics.kafka import KAFKA_METRICS
from metadata_log.releases import NEWEST_RELEASE, SUPPORTED_RELEASES

DATA: Final = Path(__file__).parents[2] / "data"
NEWEST: Final = DATA / "schemas.json.gz"
BEFORE: Final = DATA / "schemas-4.3.1.json.gz"

_AS_BEFORE: Final = (
    "fetch_request_version 18, level {level}, list_offsets_request_version 11, partition_change_record_version 2, "
    "partition_record_version 2, production {production}, register_broker_record_version 4, "
    "register_controller_record_version 0"
)
"""Record and request versions do not change above level 30."""


def _level(name: str, level: int, *, changed: bool, production: bool) -> str:
    facts = _AS_BEFORE.format(level=level, production=production)
    return rf"metadata_versions\.json {re.escape(name)}: new: did_metadata_change {changed}, {facts}"


def _setting(where: str, key: str, kind: str, default: str, *, mode: str = "read-only", internal: bool = False) -> str:
    words = f"changes {mode}, default {re.escape(default)}, internal {internal}, type {kind}"
    return rf"settings\.json {where} {re.escape(key)}: new: allowed .*, {words}"


def _api(key: int, latest: int) -> tuple[str, ...]:
    return tuple(rf"apis\.json {key}: {column} {latest - 1} -> {latest}" for column in ("latest", "latest_stable"))


def _new_api(key: int, name: str, listeners: str, *, forwardable: bool) -> str:
    ends = f"latest 0, latest_stable 0, .*listeners {listeners}, name {name}, .*"
    return rf"apis\.json {key}: new: .*forwardable {forwardable}, {ends}"


def _versions(name: str, before: str, after: str) -> str:
    return rf"{name}: validVersions {before} -> {after}"


SPECIFIED: Final[dict[str, tuple[str, ...]]] = {
    # Levels and features
    "4.4-IV0 (31) is for production, and 4.3.1 knew it": (
        r"metadata_versions\.json 4\.4-IV0: production False -> True",
    ),
    "4.4-IV1 (32) changes metadata": (_level("4.4-IV1", 32, changed=True, production=True),),
    "4.4-IV2 (33) changes metadata": (_level("4.4-IV2", 33, changed=True, production=True),),
    "4.5-IV0 (34) is unstable": (_level("4.5-IV0", 34, changed=False, production=False),),
    "share.version 2 is for production, from 4.4-IV0 on, without dependencies": (
        r"features\.json share\.version: latest_production 1 -> 2",
        r"features\.json share\.version: latest_testing 1 -> 2",
        r"features\.json share\.version: levels, more: bootstrap_metadata_version 4\.4-IV0, level 2",
    ),
    # Records
    "type 29 UnregisterControllerRecord v0, flexible, controllerId": (
        r"record_types\.json 29: new: highest 0, lowest 0, name UnregisterControllerRecord",
        r"UnregisterControllerRecord: new: type metadata, apiKey 29, validVersions 0, flexibleVersions 0\+",
        r"UnregisterControllerRecord\.ControllerId: new: type int32, versions 0\+.*",
    ),
    "AbortedTxn is a schema now": (
        r"AbortedTxn: new: type data, validVersions 0, flexibleVersions none",
        *(
            rf"AbortedTxn\.{name}: new: type int64, versions 0\+"
            for name in ("ProducerId", "FirstOffset", "LastOffset", "LastStableOffset")
        ),
    ),
    "StreamsGroupMetadataValue has two tagged fields": (
        r"StreamsGroupMetadataValue\.StoredDescriptionTopologyEpoch: new: type int32, .*tag 2, default -1",
        r"StreamsGroupMetadataValue\.FailedDescriptionTopologyEpoch: new: type int32, .*tag 3, default -1",
    ),
    # APIs
    "18 ApiVersions 0-5": (
        *_api(18, 5),
        _versions("ApiVersionsRequest", "0-4", "0-5"),
        _versions("ApiVersionsResponse", "0-4", "0-5"),
        r"ApiVersionsRequest\.ClusterId: new: type string, versions 5\+, nullableVersions 5\+, default null,"
        " ignorable True",
        r"ApiVersionsRequest\.NodeId: new: type int32, versions 5\+, default -1, ignorable True",
    ),
    "28 TxnOffsetCommit 0-6: ids of topics in place of names, and a field with another name": (
        *_api(28, 6),
        _versions("TxnOffsetCommitRequest", "0-5", "0-6"),
        _versions("TxnOffsetCommitResponse", "0-5", "0-6"),
        r"TxnOffsetCommitRequest\.GenerationIdOrMemberEpoch: new: type int32, versions 3\+, default -1",
        r"TxnOffsetCommitRequest\.GenerationId: gone: .*",
        *(
            line
            for side in ("Request", "Response")
            for line in (
                rf"TxnOffsetCommit{side}\.Topics\.Name: versions 0\+ -> 0-5",
                rf"TxnOffsetCommit{side}\.Topics\.Name: ignorable none -> True",
                rf"TxnOffsetCommit{side}\.Topics\.TopicId: new: type uuid, versions 6\+, ignorable True",
            )
        ),
    ),
    "42 DeleteGroups 0-3: a message for each group": (
        *_api(42, 3),
        _versions("DeleteGroupsRequest", "0-2", "0-3"),
        _versions("DeleteGroupsResponse", "0-2", "0-3"),
        r"DeleteGroupsResponse\.Results\.ErrorMessage: new: type string, versions 3\+, nullableVersions 3\+,"
        " default null, ignorable True",
    ),
    "61 DescribeProducers: the name of a topic is a key": (
        r"DescribeProducersRequest\.Topics\.Name: mapKey none -> True",
    ),
    "88 StreamsGroupHeartbeat 0-1: another type and order": (
        *_api(88, 1),
        _versions("StreamsGroupHeartbeatRequest", "0", "0-1"),
        _versions("StreamsGroupHeartbeatResponse", "0", "0-1"),
        r"StreamsGroupHeartbeatResponse\.AcceptableRecoveryLagLegacy: new: type int32, versions 0.*",
        r"StreamsGroupHeartbeatResponse\.AcceptableRecoveryLag: type int32 -> int64",
        r"StreamsGroupHeartbeatResponse\.AcceptableRecoveryLag: versions 0\+ -> 1\+",
        r"StreamsGroupHeartbeatResponse\.AcceptableRecoveryLag: default none -> -1",
        r"StreamsGroupHeartbeatResponse\.AcceptableRecoveryLag: ignorable none -> True",
        r"StreamsGroupHeartbeatResponse\.TopologyDescriptionRequired: new: type bool, versions 1\+.*",
        r"StreamsGroupHeartbeatResponse: fields in another order",
    ),
    "89 StreamsGroupDescribe 0-1: descriptions of topologies": (
        *_api(89, 1),
        _versions("StreamsGroupDescribeRequest", "0", "0-1"),
        _versions("StreamsGroupDescribeResponse", "0", "0-1"),
        r"StreamsGroupDescribeRequest\.IncludeTopologyDescription: new: type bool, versions 1\+.*",
        r"StreamsGroupDescribeResponse\.Groups\.TopologyDescription: new: .*nullableVersions 1\+.*",
        r"StreamsGroupDescribeResponse\.Groups\.TopologyDescriptionStatus: new: type int8, versions 1\+.*",
        r"StreamsGroupDescribeResponse\.Groups\.AssignorName: new: type string, versions 1\+, nullableVersions 1\+.*",
        r"StreamsGroupDescribeResponse\.TopologyDescription\w*(\.\w+)*: new: .*",
    ),
    "93 StreamsGroupTopologyDescriptionUpdate": (
        _new_api(93, "StreamsGroupTopologyDescriptionUpdate", "broker", forwardable=False),
        r"StreamsGroupTopologyDescriptionUpdateRequest: new: type request, apiKey 93, validVersions 0, .*",
        r"StreamsGroupTopologyDescriptionUpdateResponse: new: type response, apiKey 93, validVersions 0, .*",
        r"StreamsGroupTopologyDescriptionUpdateRequest(\.\w+)+: new: .*",
        r"StreamsGroupTopologyDescriptionUpdateResponse(\.\w+)+: new: .*",
    ),
    "94 UnregisterController": (
        _new_api(94, "UnregisterController", "broker controller", forwardable=True),
        r"UnregisterControllerRequest: new: type request, apiKey 94, validVersions 0, .*",
        r"UnregisterControllerRequest\.ControllerId: new: type int32, .*",
        r"UnregisterControllerResponse: new: type response, apiKey 94, validVersions 0, .*",
        r"UnregisterControllerResponse\.ThrottleTimeMs: new: type int32, .*",
        r"UnregisterControllerResponse\.ErrorCode: new: type int16, .*",
        r"UnregisterControllerResponse\.ErrorMessage: new: type string, .*nullableVersions 0\+.*",
    ),
    # Errors
    "three errors and a text": (
        r"errors\.json 134: new: .*DeleteGroups could not complete; see the error message on the per-group result for"
        r" details\., name GROUP_DELETION_FAILED, retriable False",
        r"errors\.json 135: new: .*The broker could not process the topology description update; see the error message"
        r" for details\., name STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, retriable False",
        r"errors\.json 136: new: .*The given controller ID was not registered\., name CONTROLLER_ID_NOT_REGISTERED,"
        " retriable False",
        r"errors\.json 124: message .* -> The coordinator rejected the request because the state epoch did not match\.",
    ),
    # Settings
    "settings of topics": (
        _setting("topic", "errors.deadletterqueue.group.enable", "BOOLEAN", "false"),
        r"settings\.json topic max\.decompressed\.message\.bytes: new: allowed \[1,\.\.\.,2147483639\],"
        " .*default 2147483639,.*",
        r"settings\.json topic remote\.copy\.lag\.ms: new: allowed \[-1,\.\.\.\], .*default 0, .*type LONG",
        r"settings\.json topic remote\.copy\.lag\.bytes: new: allowed \[-1,\.\.\.\], .*default -1, .*type LONG",
    ),
    "settings of brokers that may change": (
        _setting("broker", "max.decompressed.message.bytes", "INT", "2147483639", mode="cluster-wide"),
        _setting("broker", "log.remote.copy.lag.ms", "LONG", "0", mode="cluster-wide"),
        _setting("broker", "log.remote.copy.lag.bytes", "LONG", "-1", mode="cluster-wide"),
        _setting("broker", "errors.deadletterqueue.auto.create.topics.enable", "BOOLEAN", "false", mode="cluster-wide"),
        _setting("broker", "errors.deadletterqueue.topic.name.prefix", "STRING", "dlq.", mode="cluster-wide"),
        *(
            _setting(
                "broker", f"group.{kind}.assignor.offload.enable", "BOOLEAN", "true", mode="cluster-wide", internal=True
            )
            for kind in ("consumer", "share", "streams")
        ),
    ),
    "other settings of brokers": (
        r"settings\.json broker group\.share\.dlq\.manager\.class\.name: new: .*internal True.*",
        _setting("broker", "group.streams.assignors", "LIST", "sticky"),
        _setting("broker", "group.streams.rack.aware.assignment.tags", "LIST", ""),
        _setting("broker", "group.streams.topology.description.plugin.class", "CLASS", "none"),
        _setting("broker", "group.streams.acceptable.recovery.lag", "LONG", "10000", internal=True),
        _setting("broker", "group.streams.max.warmup.replicas", "INT", "20", internal=True),
        _setting("broker", "group.streams.num.warmup.replicas", "INT", "2", internal=True),
        _setting("broker", "group.streams.task.offset.interval.ms", "INT", "60000", internal=True),
        _setting("broker", "group.streams.min.task.offset.interval.ms", "INT", "15000", internal=True),
    ),
    "settings of groups": (
        _setting("group", "errors.deadletterqueue.topic.name", "STRING", ""),
        _setting("group", "errors.deadletterqueue.copy.record.enable", "BOOLEAN", "false"),
        _setting("group", "streams.assignor.name", "STRING", "none"),
        _setting("group", "streams.rack.aware.assignment.tags", "LIST", ""),
        _setting("group", "streams.num.warmup.replicas", "INT", "2", internal=True),
        _setting("group", "streams.acceptable.recovery.lag", "LONG", "10000", internal=True),
        _setting("group", "streams.task.offset.interval.ms", "INT", "60000", internal=True),
        *(
            _setting("group", f"{kind}.assignor.offload.enable", "BOOLEAN", "true", internal=True)
            for kind in ("consumer", "share", "streams")
        ),
    ),
    "settings of tokens, of brokers and clients": tuple(
        _setting(where, f"sasl.oauthbearer.allow.unverified.{what}", "BOOLEAN", "false")
        for where in ("broker", "producer", "consumer", "admin")
        for what in ("issuer", "audience")
    ),
    "settings of clients": (
        *(
            _setting(kind, "metadata.cluster.check.enable", "BOOLEAN", "true")
            for kind in ("producer", "consumer", "admin")
        ),
        *(_setting(kind, "bootstrap.resolve.timeout.ms", "LONG", "0") for kind in ("producer", "consumer", "admin")),
        _setting("producer", "partitioner.rack.aware", "BOOLEAN", "false"),
        _setting("producer", "buffer.memory.allocation.strategy", "STRING", "full", internal=True),
    ),
    # Metrics
    "the disk of a process": tuple(
        rf"metrics\.json kafka\.server:type={server},name=linux-disk-{what}: new"
        for server in ("ControllerServer", "KafkaServer")
        for what in ("rchar", "wchar", "syscr", "syscw", "cancelled-write-bytes")
    ),
    "requests of the new APIs": tuple(
        rf"metrics\.json kafka\.network:type=RequestMetrics,name={what} by request={api}: new"
        for api in ("UnregisterController", "StreamsGroupTopologyDescriptionUpdate")
        for what in ("TotalTimeMs", "RequestQueueTimeMs", "LocalTimeMs", "RemoteTimeMs", "ResponseSendTimeMs", r"\w+")
    ),
    "the group coordinator": (
        r"metrics\.json kafka\.server:type=group-coordinator-metrics by state classic-group-count: new",
        r"metrics\.json kafka\.server:type=group-coordinator-metrics offset-count: new",
        r"metrics\.json kafka\.server:type=group-coordinator-metrics streams-group-topology-description-[a-z-]+: new",
        r"metrics\.json GroupCoordinatorMetrics: (StreamsGroupTopologyDescription\w+|[a-z-]+-count): new",
    ),
    "share groups": tuple(
        rf"metrics\.json ShareGroupMetrics: DeadLetterQueue{what}: new"
        for what in ("RecordCount", "TotalProduceRequestsPerSec", "FailedProduceRequestsPerSec")
    ),
}
MORE: Final = (
    r"settings\.json producer client\.rack: new: .*",
    r"metrics\.json kafka\.server:type=ShareGroupDLQManager-channel-metrics [a-z-]+: new",
)
"""What the tool found and the comparison had not."""


@pytest.fixture(scope="module")
def lines() -> list[str]:
    command = [sys.executable, "-m", "metadata_log.serde.declare", str(NEWEST), "--since", str(BEFORE), "--diff"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line.removeprefix("- [ ] ") for line in told.splitlines() if line.startswith("- [ ] ")]


def test_the_facts_are_those_of_the_supported_releases() -> None:
    """A new release has facts of its own, and this comparison becomes one of an older pair."""
    assert NEWEST_RELEASE == "4.4.0"
    assert BEFORE.name.removeprefix("schemas-").removesuffix(".json.gz") == SUPPORTED_RELEASES[-2]


@pytest.mark.parametrize("what", SPECIFIED)
def test_nothing_that_was_specified_is_missing(lines: list[str], what: str) -> None:
    for pattern in SPECIFIED[what]:
        assert any(re.fullmatch(pattern, line) for line in lines), pattern


def test_every_line_is_explained(lines: list[str]) -> None:
    """The settings of nodes, topics and groups are 33, and nothing is listed twice."""
    patterns = [*(pattern for some in SPECIFIED.values() for pattern in some), *MORE]
    assert [line for line in lines if not any(re.fullmatch(pattern, line) for pattern in patterns)] == []
    assert len(set(lines)) == len(lines)
    assert sum(bool(re.match(r"settings\.json (broker|topic|group) ", line)) for line in lines) == 33
    assert not any(": gone" in line for line in lines if "GenerationId:" not in line)


def test_the_page_shows_lines_of_the_list(lines: list[str]) -> None:
    page = (DATA.parents[1] / "docs/howto/new-kafka-release.md").read_text("utf-8")
    shown = re.findall(r"^- \[ \] (.*)$", page, re.MULTILINE)
    assert len(shown) > 8
    assert [line for line in shown if line not in lines] == []
    assert f"the list has\n{len(lines)} lines" in page


def test_the_page_of_metrics_names_what_is_absent(lines: list[str]) -> None:
    """Each new metric is one of ours, or is named with the reason."""
    page = (DATA.parents[1] / "docs/howto/metrics-and-health.md").read_text("utf-8")
    page = page.partition("came with Kafka 4.4")[2]
    ours = {one.name for one in KAFKA_METRICS}
    for line in lines:
        if line.startswith("metrics.json "):
            words = set(re.findall(r"[\w-]{8,}", line)) - {
                "RequestMetrics",
                "GroupCoordinatorMetrics",
                "ShareGroupMetrics",
            }
            is_topology = "topology-description" in line or "TopologyDescription" in line
            assert words & ours or is_topology or any(f"`{word}`" in page for word in words), line
