"""Requests about transactions, at every version, get the answers of brokers of Kafka 4.3.1: C33 to C35."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from metadata_log.serde.json_form import from_json, to_json
from support.broker.coordinated_brokers import Coordinated
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.messages.init_producer_id import InitProducerIdRequest

PROBES: Final = Path(__file__).parents[3] / "data" / "transaction_probes.jsonl.gz"
STATE: Final = ((102,), (101,), (101,), (102,))
GROUPS: Final = ((102,), (101,), (102,), (101,), (102,))
"""The leaders of `__transaction_state` and `__consumer_offsets` in the recorded cluster."""
SOON: Final = "51"
IGNORED: Final = frozenset(("throttleTimeMs", "transactionStartTimeMs"))
IDS: Final = frozenset(("producerId", "v3AndBelowProducerId", "producerIdFilters"))


def probes() -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(PROBES.read_bytes()).splitlines()]


def _renamed(request: dict[str, Any]) -> dict[str, Any]:
    """A request with the name of a field as later releases have it."""
    return {{"generationId": "generationIdOrMemberEpoch"}.get(key, key): value for key, value in request.items()}


class Replay:
    """Our brokers, and our producer ids for those of the recorded cluster."""

    def __init__(self) -> None:
        self.count = 0
        self.wrong: list[tuple[str, int, Any, Any]] = []
        self.begin()

    def begin(self) -> None:
        """A new cluster, with producer ids at hand in both brokers."""
        self.cluster = Coordinated(STATE, out=((102,), (101,), (102,)), groups=GROUPS, abort_interval_ms=2000)
        self.ours: dict[int, int] = {}
        for broker in (101, 102):
            self.cluster.ask(broker, InitProducerIdRequest(transactional_id=None))

    def request(self, value: Any, name: str = "") -> Any:
        """A request with our producer ids. A wrong id is one of Kafka's, a little larger."""
        match value:
            case dict():
                return {key: self.request(one, key) for key, one in value.items()}
            case list():
                return [self.request(one, name) for one in value]
            case int() if name in IDS and value >= 0:
                return self.ours.get(value, value + 500_000)
        return value

    def told(self, value: Any, ours: Mapping[int, int], name: str = "") -> Any:
        """An answer without times and orders, with other producer ids."""
        match value:
            case dict():
                return {key: self.told(one, ours, key) for key, one in value.items() if key not in IGNORED}
            case list():
                return sorted((self.told(one, ours, name) for one in value), key=json.dumps)
            case int() if name in IDS:
                return ours.get(value, value)
        return value

    def play(self, probe: dict[str, Any]) -> None:
        """Ask what Kafka was asked; a transaction ends when Kafka's has ended, and not before."""
        key = next(key for key, api in ALL_APIS.items() if api.name == probe["api"])
        message = from_json(ALL_APIS[key].request, probe["version"], self.request(_renamed(probe["request"])))
        expected = probe["response"]
        for is_over in (False, True):
            if is_over:
                self.cluster.settle()
            answer = self.cluster.ask(probe["broker"], message, probe["version"], markers=False)
            found: Any = to_json(answer, probe["version"])
            if SOON not in json.dumps(found) or SOON in json.dumps(expected):
                break
        if probe["api"] == "InitProducerId" and expected["errorCode"] == 0 == found["errorCode"]:
            self.ours.setdefault(expected["producerId"], found["producerId"])
        self.count += 1
        if self.told(found, {}) != self.told(expected, self.ours):
            self.wrong.append((probe["probe"], probe["version"], found, expected))


def test_answers_are_those_of_kafka() -> None:
    replay = Replay()
    before_ms = 0
    for probe in probes():
        if probe["t_ms"] < before_ms - 10_000:
            replay.begin()
        passed_ms = max(0, min(probe["t_ms"] - before_ms, 10_000))
        replay.cluster.settle(markers=passed_ms > 1000, after_ms=passed_ms)
        before_ms = probe["t_ms"]
        replay.play(probe)
    for one in replay.wrong:
        print(one)
    assert replay.wrong == []
    assert replay.count == 416
