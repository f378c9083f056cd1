"""Requests about classic groups, at every version, get the answers of a broker of Kafka.

The requests come at the times at which Kafka got them, in virtual time. Ids of members differ, and so does the order in
which topics and groups stand in an answer.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any, Final

from kraft.wire import Answer
from metadata_log.serde.json_form import from_json, to_json
from metadata_log.types import Uuid
from support.broker.request_brokers import START_MS, Brokers, NewTopic, wire_request
from transport.protocol.apis import ApiKey
from transport.protocol.broker_apis import ALL_APIS

PROBES: Final = Path(__file__).parents[3] / "data" / "group_probes.jsonl.gz"
DELAY_MS: Final = 3000
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
