"""Requests about groups, at every version, get the answers of a broker of Kafka, with its texts."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from kraft.access.authorizer import AclOperation, AclResource, AuthorizerSettings
from kraft.config.group_settings import ConsumerGroupConfig, GroupConfig
from kraft.coordinators.groups.streams_handler import StreamsGroupHandler
from kraft.handling.rights import Rights
from kraft.wire import Answer
from metadata_log.records.metadata import AccessControlEntryRecord, FeatureLevelRecord
from metadata_log.serde.json_form import from_json, to_json
from metadata_log.types import Uuid
from support.broker.group_clients import GroupBrokers
from support.broker.request_brokers import START_MS, Brokers, NewTopic, cluster_of, replayed, wire_request
from support.broker.topology_answers import OFF, ON, recorded
from transport.protocol.apis import ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.headers import decode_request, encode_response
from transport.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

PROBES: Final = Path(__file__).parents[3] / "data" / "group_probes.jsonl.gz"
SHARED: Final = "A-jsh"
"""A share group that was there."""
_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")


def probes() -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(PROBES.read_bytes()).splitlines()]


class Replay:
    """Two brokers, and the member ids of Kafka's with ours."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        topics = [
            NewTopic(
                one["name"],
                Uuid.parse(one["topicId"]),
                tuple(
                    (part["leaderId"],) for part in sorted(one["partitions"], key=lambda each: each["partitionIndex"])
                ),
            )
            for one in metadata["response"]["topics"]
        ]
        self.brokers = Brokers(topics)
        self.ids: dict[str, str] = {}
        self.sent: dict[int, dict[str, Any]] = {}
        self.last_id = 0
        self.wrong: list[tuple[str, Any, Any]] = []
        self.count = 0

    def translated(self, value: Any) -> Any:
        """A value of Kafka's with our member ids."""
        match value:
            case str():
                return self.ids.get(value, value)
            case list():
                return [self.translated(one) for one in value]
            case dict():
                return {key: self.translated(one) for key, one in value.items()}
        return value

    def learn(self, theirs: Any, ours: Any) -> None:
        """Note which id of ours stands where Kafka has one."""
        match theirs, ours:
            case (str(), str()) if _ID.search(theirs) and _ID.search(ours):
                self.ids.setdefault(theirs, ours)
            case (list(), list()):
                for one, other in zip(theirs, ours, strict=False):
                    self.learn(one, other)
            case (dict(), dict()):
                for key in theirs:
                    self.learn(theirs[key], ours.get(key))

    def run_until(self, at_ms: int) -> None:
        """Let time pass."""
        due = self.brokers.now_ms
        while due <= at_ms:
            self.brokers.now_ms = due
            for one in (101, 102):
                for outcome in self.brokers.poll(one):
                    self.take(outcome)
            due = min(max(self.brokers.due_ms(one), due) for one in (101, 102))
        self.brokers.now_ms = max(at_ms, self.brokers.now_ms)

    def send(self, probe: dict[str, Any]) -> None:
        key = ApiKey[re.sub(r"(?<!^)(?=[A-Z])", "_", probe["api"]).upper()]
        message = from_json(ALL_APIS[key].request, probe["version"], self.translated(probe["request"]))
        self.last_id += 1
        self.sent[self.last_id] = probe
        request = wire_request(self.last_id, key, probe["version"], message, client_id="probe")
        outcome = self.brokers.requests[probe["broker"]].on_request(request, self.brokers.image, self.brokers.now_ms)
        if outcome is not None:
            self.take(outcome)
        self.run_until(self.brokers.now_ms)

    def take(self, outcome: object) -> None:
        assert isinstance(outcome, Answer), outcome
        probe = self.sent.pop(outcome.request_id)
        ours: Any = to_json(outcome.message, probe["version"])
        self.learn(probe["response"], ours)
        theirs = self.translated(probe["response"])
        self.count += 1
        if ordered(theirs) != ordered(ours):
            self.wrong.append((f"{probe['probe']} {probe['api']} {probe['version']} {probe['request']}", theirs, ours))
        if probe["ms"] > 1000:
            late_ms = self.brokers.now_ms - START_MS - probe["t_ms"] - probe["ms"]
            assert -100 < late_ms < 100, (probe["probe"], late_ms)


def ordered(value: Any) -> Any:
    """An answer with its lists in order, and without what is not compared."""
    if isinstance(value, list):
        kept = [ordered(one) for one in value if not (isinstance(one, dict) and one.get("groupId") == SHARED)]
        return sorted(kept, key=lambda one: json.dumps(one, sort_keys=True))
    if isinstance(value, dict):
        return {key: ordered(one) for key, one in value.items()}
    return value


def test_each_answer_is_kafkas() -> None:
    metadata, *rest = probes()
    replay = Replay(metadata)
    for probe in sorted(rest, key=lambda one: one["t_ms"]):
        replay.run_until(START_MS + probe["t_ms"])
        replay.send(probe)
    replay.run_until(replay.brokers.now_ms + 10_000)
    assert not replay.sent
    assert replay.count == len(rest)
    # The first one says what is wrong; the others often follow from it.
    told = [f"{what}\nKafka {json.dumps(theirs)}\nours  {json.dumps(ours)}" for what, theirs, ours in replay.wrong]
    assert not told, f"{len(told)} answers are not Kafka's, at first {told[0]}"


# Where Kafka answers a text beside an error, a client is told why it was refused.


MEMBER = str(Uuid.ZERO)


def beat(**fields: Any) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat that joins, but for these fields."""
    joins: dict[str, Any] = {"member_id": MEMBER, "member_epoch": 0, "rebalance_timeout_ms": 9000}
    joins |= {"subscribed_topic_names": ["orders"], "topic_partitions": []}
    return ConsumerGroupHeartbeatRequest("g", **(joins | fields))


def world(**settings: Any) -> GroupBrokers:
    brokers = GroupBrokers(**settings)
    brokers.brokers.change(FeatureLevelRecord(name="group.version", feature_level=1))
    return brokers


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"member_id": "x", "member_epoch": 5}, Error.UNKNOWN_MEMBER_ID, "Member x"),
        ({"member_epoch": 7}, Error.FENCED_MEMBER_EPOCH, "rejoin"),
        ({"member_epoch": -1, "member_id": "x"}, Error.UNKNOWN_MEMBER_ID, "x"),
        ({"instance_id": "i", "member_epoch": 3, "member_id": "x"}, Error.UNKNOWN_MEMBER_ID, "i"),
        ({"member_epoch": -3}, Error.INVALID_REQUEST, "epoch"),
        ({"subscribed_topic_regex": "("}, Error.INVALID_REGULAR_EXPRESSION, "regular expression"),
    ],
)
def test_a_refused_heartbeat_says_why(fields: dict[str, Any], error: Error, words: str) -> None:
    brokers = world()
    assert brokers.ask(beat(), 1).error_code == 0
    answer = brokers.ask(beat(**fields), 1)
    assert answer.error_code == error
    assert words in (answer.error_message or ""), answer


# StreamsGroupTopologyDescriptionUpdate is answered with the bytes of a broker of Kafka 4.4.0.


KEY = 93
DENY, LITERAL = 2, 3


@pytest.mark.parametrize("name", [ON, OFF])
def test_each_answer_has_kafkas_bytes(name: str) -> None:
    rule = AccessControlEntryRecord(
        id=Uuid(bytes(16)),
        resource_type=AclResource.GROUP,
        resource_name="hidden",
        pattern_type=LITERAL,
        principal="User:ANONYMOUS",
        host="*",
        operation=AclOperation.READ,
        permission_type=DENY,
    )
    image = replayed(cluster_of([]), FeatureLevelRecord(name="streams.version", feature_level=1), rule)
    rights = Rights(AuthorizerSettings(allows_without_acl=True))
    rights.use(image)
    protocols = frozenset(("classic", "consumer", *(("streams",) if name == ON else ())))
    groups: Any = None  # no group is asked
    settings = GroupConfig(consumer=ConsumerGroupConfig(protocols=protocols))
    handler = StreamsGroupHandler(groups, settings, rights, lambda *_: {})
    for one in recorded()[name]:
        header, message = decode_request(bytes.fromhex(one.request), apis=ALL_APIS)
        request: Any = wire_request(1, KEY, 0, message)
        answer = handler.update_topology(request, image, 0).message
        assert encode_response(KEY, 0, header.correlation_id, answer, apis=ALL_APIS).hex() == one.answer, one.group
