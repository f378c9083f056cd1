"""One controller seen from outside, ours or Kafka's: requests by names, answers without randomly drawn values.

A story asks two controllers the same things. Topic ids, epochs and incarnations differ between them, so that requests
are built from what a side has answered before, and answers and records are compared with names in their place.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import cache
from typing import Any, Final

from msgspec import structs

from kraft.access.caller import Caller
from kraft.controller import ControllerResult, ControllerSettings, QuorumController
from kraft.controller.decision.request_context import DecisionSettings
from metadata_log.records import metadata
from metadata_log.releases import NEWEST_RELEASE, feature_levels
from metadata_log.serde import Message, schema_of
from metadata_log.types import Uuid
from support import DATA
from transport.protocol import messages as m
from transport.protocol.apis import ApiKey
from transport.protocol.headers import decode_request, decode_response, encode_request, encode_response
from transport.protocol.messages.broker_registration import Feature, Listener

PLACED: Final = "placed"
"""The prefix of topics for which the controller chooses the replicas."""
ROUGHLY_MS: Final = 600_000
"""Renewals of tokens are told apart if they are at least so far from each other."""
NEARBY: Final = Caller(host="127.0.0.1")
"""The principal of requests at a listener without login."""
CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"
FEATURES: Final = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "metadata.version": (7, 33),
    "share.version": (0, 2),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}
"""What a broker of 4.4.0 says of itself."""


def directory(broker: int, number: int = 0) -> Uuid:
    """The id of a broker's log directory; the broker's own is number 0."""
    return Uuid(bytes([0x10 + number, *broker.to_bytes(15, "big")]))


def incarnation(broker: int, number: int = 0) -> Uuid:
    """The id of a start of a broker."""
    return Uuid(bytes([0x40 + number, *broker.to_bytes(15, "big")]))


def registration(broker: int, **changes: Any) -> m.BrokerRegistrationRequest:
    """The registration of a healthy broker."""
    request = m.BrokerRegistrationRequest(
        broker_id=broker,
        cluster_id=CLUSTER_ID,
        incarnation_id=incarnation(broker),
        listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=9000 + broker)],
        features=[
            Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in FEATURES.items()
        ],
        rack=f"rack-{broker % 2}",
        log_dirs=[directory(broker)],
    )
    return structs.replace(request, **changes)


class Side:
    """A controller and what it has answered so far. `ask` sends one request in one version."""

    def __init__(self, ask: Callable[[Message, int], Message]) -> None:
        self._ask = ask
        self.epochs: dict[int, int] = {}
        self.topics: dict[str, Uuid] = {}
        self.tokens: list[bytes] = []
        """The HMACs of the tokens issued."""
        self._issued_ms: dict[bytes, int] = {}

    def ask(self, request: Message, version: int) -> dict[str, Any]:
        """The answer, with names instead of ids."""
        response = self._ask(request, version)
        if isinstance(request, m.EnvelopeRequest) and isinstance(response, m.EnvelopeResponse):
            if response.response_data is None:
                answer: dict[str, Any] = self.named(response)
                return answer
            header, forwarded = decode_request(request.request_data)
            api_key, version = ApiKey(header.request_api_key), header.request_api_version
            return self._told(forwarded, decode_response(api_key, version, response.response_data)[1])
        return self._told(request, response)

    def _told(self, request: Message, response: Message) -> dict[str, Any]:
        match response:
            case m.BrokerRegistrationResponse():
                assert isinstance(request, m.BrokerRegistrationRequest)
                if response.error_code == 0:
                    self.epochs[request.broker_id] = response.broker_epoch
                response = structs.replace(response, broker_epoch=min(response.broker_epoch, 0))
            case m.CreateTopicsResponse():
                for topic in response.topics:
                    if topic.topic_id != Uuid.ZERO and not getattr(request, "validate_only", False):
                        self.topics[topic.name] = topic.topic_id
                drawn = [structs.replace(one, topic_id=Uuid.ZERO) for one in response.topics]
                response = structs.replace(response, topics=drawn)
            case m.DeleteTopicsResponse():
                # Old versions of CreateTopics tell no id.
                for deleted in response.responses:
                    if deleted.error_code == 0 and deleted.name is not None and deleted.topic_id != Uuid.ZERO:
                        self.topics[deleted.name] = deleted.topic_id
            case m.CreateDelegationTokenResponse() if response.error_code == 0:
                self.tokens.append(response.hmac)
                issued_ms = self._issued_ms[response.hmac] = response.issue_timestamp_ms
                response = structs.replace(
                    response,
                    token_id="",
                    hmac=b"",
                    issue_timestamp_ms=0,
                    expiry_timestamp_ms=response.expiry_timestamp_ms - issued_ms,
                    max_timestamp_ms=response.max_timestamp_ms - issued_ms,
                )
            case m.RenewDelegationTokenResponse() | m.ExpireDelegationTokenResponse() if response.error_code == 0:
                assert isinstance(request, (m.RenewDelegationTokenRequest, m.ExpireDelegationTokenRequest))
                since = _roughly(response.expiry_timestamp_ms - self._issued_ms[request.hmac])
                response = structs.replace(response, expiry_timestamp_ms=since)
            case _:
                pass
        named: dict[str, Any] = self.named(response)
        return named

    def named(self, value: Any) -> Any:
        """A message as plain values: topic ids by name, lists of structs sorted, as their order is not promised."""
        if isinstance(value, Uuid):
            names = {topic_id: name for name, topic_id in self.topics.items()}
            return names.get(value, str(value))
        if isinstance(value, Message):
            return {name: self.named(getattr(value, name)) for name in value.__struct_fields__}
        if isinstance(value, (list, tuple)):
            plain = [self.named(one) for one in value]
            return sorted(plain, key=repr) if plain and isinstance(plain[0], dict) else plain
        return value


def _roughly(ms: int) -> int:
    """A time since a token was issued, without what a test takes."""
    return ms // ROUGHLY_MS * ROUGHLY_MS


class InProcess:
    """Our controller without a log: what it decides is committed at once. Its clock stands still."""

    def __init__(self, *, release: str = NEWEST_RELEASE, **settings: Any) -> None:
        """The cluster is new, with the features of this release."""
        if "max_idle_interval_ms" in settings:
            decisions = settings.get("decisions", DecisionSettings())
            idle_ms = settings.pop("max_idle_interval_ms")
            settings["decisions"] = structs.replace(decisions, max_idle_interval_ms=idle_ms)
        usual = {
            "voters": ((1, "127.0.0.1", 9093),),
            "listeners": (("CONTROLLER", "127.0.0.1", 9093),),
            "incarnation_id": Uuid(b"\x05" * 16),
            "bootstrap": tuple(
                metadata.FeatureLevelRecord(name=name, feature_level=level) for name, level in feature_levels(release)
            ),
        }
        self.controller = QuorumController(
            ControllerSettings(
                cluster_id=CLUSTER_ID,
                node_id=1,
                listener="CONTROLLER",
                **(usual | settings),
            )
        )
        self.now_ms = 1_000_000
        self.end = 1
        self.batches: list[list[tuple[int, Message]]] = []
        self._append(self.controller.activate(1, self.end, self.now_ms))
        self.advance(0)

    def ask(self, request: Message, version: int) -> Message:
        """Decide, write, commit, answer."""
        api_key = schema_of(type(request)).api_key
        assert api_key is not None
        # Both ways through the codec, as an old version leaves fields out.
        request = decode_request(encode_request(api_key, version, 0, "", request))[1]
        result = self.controller.handle(request, version, 1, self.now_ms, NEARBY)
        self._append(result)
        assert result.response is not None
        return decode_response(api_key, version, encode_response(api_key, version, 0, result.response))[1]

    def advance(self, ms: int) -> None:
        """Let time go on; timed work is done when it is due."""
        until = self.now_ms + ms
        while self.controller.agenda.deadline_ms <= until:
            self.now_ms = max(self.now_ms, self.controller.agenda.deadline_ms)
            for result in self.controller.on_tick(self.now_ms):
                self._append(result)
            request = self.controller.registration_due(self.now_ms)
            if request is not None:
                self.controller.on_registration_answer(self.ask(request, 0), self.now_ms)
        self.now_ms = until

    def _append(self, result: ControllerResult) -> None:
        if result.records:
            self.controller.on_appended(result.records, self.end)
            self.batches.append([(one.version, one.record) for one in result.records])
            self.end += len(result.records)
            self.controller.on_committed(self.end)


def by_batches(batches: Iterable[list[tuple[int, Message]]]) -> list[list[str]]:
    """Batches to compare: topics by name, without the order in a batch and what a controller writes for itself.

    Where the controller has chosen replicas only their number is left.
    """
    names: dict[Uuid, str] = {}
    entries: dict[Uuid, str] = {}
    found = []
    for batch in batches:
        lines = []
        for version, record in batch:
            shown = record
            match record:
                case metadata.NoOpRecord():
                    continue
                case metadata.RegisterControllerRecord(controller_id=1):
                    continue
                case metadata.AccessControlEntryRecord():
                    shown = structs.replace(record, id=Uuid.ZERO)
                    entries[record.id] = str(shown)
                case metadata.RemoveAccessControlEntryRecord():
                    lines.append(f"removed {entries.pop(record.id)}")
                    continue
                case metadata.DelegationTokenRecord():
                    shown = structs.replace(
                        record,
                        token_id="",
                        issue_timestamp=0,
                        max_timestamp=record.max_timestamp - record.issue_timestamp,
                        expiration_timestamp=_roughly(record.expiration_timestamp - record.issue_timestamp),
                    )
                case metadata.RemoveDelegationTokenRecord():
                    shown = structs.replace(record, token_id="")
                case metadata.TopicRecord():
                    names[record.topic_id] = record.name
                case metadata.PartitionRecord() if names[record.topic_id].startswith(PLACED):
                    shown = structs.replace(
                        record,
                        replicas=(0,) * len(record.replicas),
                        isr=(),
                        leader=0,
                        directories=(),
                    )
                case _:
                    pass
            fields: dict[str, Any] = {
                name: int(value) if isinstance(value, IntEnum) else value
                for name, value in structs.asdict(shown).items()
            }
            if "topic_id" in fields:
                fields["topic_id"] = names.get(fields["topic_id"], "?")
            lines.append(f"{type(record).__name__} v{version} {fields}")
        if lines:
            found.append(sorted(lines))
    return found


def plain(value: Any) -> Any:
    """As JSON has it."""
    return json.loads(json.dumps(value, default=str))


def without_frame(value: Any) -> Any:
    """An answer without what every answer has: the throttle time, and the unknown fields of each struct."""
    if isinstance(value, dict):
        return {
            name: without_frame(one)
            for name, one in value.items()
            if name not in ("throttle_time_ms", "unknown_tagged")
        }
    return [without_frame(one) for one in value] if isinstance(value, list) else value


@cache
def recorded_answers() -> dict[str, list[dict[str, Any]]]:
    """The answers of Apache Kafka 4.4.0 to each story, by its name."""
    with gzip.open(DATA / "controller_answers.json.gz") as file:
        found: dict[str, list[dict[str, Any]]] = json.load(file)
        return found
