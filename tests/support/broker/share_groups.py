"""Brokers that serve share groups, in virtual time: clients send requests at any time, and brokers each other."""

from __future__ import annotations

from typing import Any, Final

from kraft.access.authorizer import AuthorizerSettings
from kraft.config.group_settings import GroupConfig, ShareGroupConfig, StreamsGroupConfig
from kraft.handling.coordinators import partition_of
from kraft.wire import Answer, Send
from metadata_log.records.metadata import FeatureLevelRecord
from metadata_log.serde import Message
from metadata_log.serde.fields import schema_of
from support.broker.request_brokers import BROKERS, Brokers, NewTopic, topic_id, wire_request
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.inbound import ANONYMOUS, Principal
from transport.protocol.messages.list_offsets import ListOffsetsRequest

OFFSETS, STATES = topic_id(31), topic_id(32)
_COUNT: Final = 4
_OF_BROKERS: Final = 10_000_000
"""The first id of a request of a broker."""


class ShareBrokers:
    """Three brokers with the internal topics of share groups, each partition with one replica.

    Args:
        topics: Further topics.
        coordinators: Which broker coordinates a group; 101 for others.
        version: The level of `share.version`.
        authorizer: The settings of an authorizer; None if everything is allowed.
        states: The leaders of the partitions of `__share_group_state`.
        streams: The settings of streams groups.
        settings: The settings of share groups.
    """

    def __init__(
        self,
        *topics: NewTopic,
        coordinators: dict[str, int] | None = None,
        version: int = 2,
        authorizer: AuthorizerSettings | None = None,
        states: tuple[int, ...] = (101, 102, 103),
        streams: StreamsGroupConfig | None = None,
        **settings: int,
    ) -> None:
        leaders = [101] * _COUNT
        for group_id, broker_id in (coordinators or {}).items():
            leaders[partition_of(group_id, _COUNT)] = broker_id
        self.brokers = Brokers(
            [
                NewTopic(
                    "__consumer_offsets", OFFSETS, tuple((one,) for one in leaders), {"cleanup.policy": "compact"}
                ),
                NewTopic("__share_group_state", STATES, tuple((one,) for one in states), {"retention.ms": "-1"}),
                *topics,
            ],
            authorizer=authorizer,
            groups=GroupConfig(share=ShareGroupConfig(**settings), streams=streams or StreamsGroupConfig()),
        )
        self.brokers.change(
            FeatureLevelRecord(name="metadata.version", feature_level=33),
            FeatureLevelRecord(name="group.version", feature_level=1),
            FeatureLevelRecord(name="share.version", feature_level=version),
        )
        self.answers: dict[int, Message] = {}
        self.down: set[int] = set()
        """Brokers that answer no other broker."""
        self.deaf: set[int] = set()
        """Brokers that do not tell the ends of logs."""
        self.for_controller: list[Send] = []
        """What brokers ask the controllers."""
        self._askers: dict[int, tuple[int, Send]] = {}
        self._last_id = 0
        self._last_own_id = _OF_BROKERS
        # The coordinators load their partitions.
        self.wait(100)

    @property
    def now_ms(self) -> int:
        """The time."""
        return self.brokers.now_ms

    def send(
        self,
        broker_id: int,
        message: Message,
        version: int | None = None,
        *,
        client_id: str = "probe",
        principal: Principal = ANONYMOUS,
    ) -> int:
        """Send a request, and return its id; `answers` has the answer once it is there."""
        key = schema_of(type(message)).api_key
        assert key is not None
        self._last_id += 1
        version = ALL_APIS[key].versions.highest if version is None else version
        request = wire_request(self._last_id, key, version, message, client_id=client_id, principal=principal)
        self._take(broker_id, self.brokers.requests[broker_id].on_request(request, self.brokers.image, self.now_ms))
        return self._last_id

    def ask(self, broker_id: int, message: Message, version: int | None = None, **given: Any) -> Any:
        """Send a request, and let everything settle; returns the answer."""
        request_id = self.send(broker_id, message, version, **given)
        self.settle()
        return self.answers.pop(request_id)

    def settle(self) -> None:
        """Let everything arrive and be answered that needs no time but some milliseconds."""
        idle = 0
        while idle < 3:
            idle = 0 if self._turn() else idle + 1
            self.brokers.now_ms += 1
        self.brokers.now_ms -= 3

    def wait(self, ms: int) -> None:
        """Let time pass, with all that is due in it."""
        end_ms = self.now_ms + ms
        while True:
            due_ms = min(self.brokers.due_ms(one) for one in BROKERS)
            if due_ms > end_ms:
                break
            self.brokers.now_ms = max(self.now_ms, due_ms)
            self._turn()
        self.brokers.now_ms = max(self.now_ms, end_ms)

    def _turn(self) -> bool:
        moved = False
        for one in BROKERS:
            for outcome in self.brokers.poll(one):
                moved = True
                self._take(one, outcome)
            for send in self.brokers.due(one):
                moved = True
                self._deliver(one, send)
        return moved

    def _deliver(self, asker: int, send: Send) -> None:
        if send.target is None:
            self.for_controller.append(send)
            return
        is_deaf = send.target.node_id in self.deaf and isinstance(send.message, ListOffsetsRequest)
        if is_deaf or send.target.node_id in self.down:
            self.brokers.requests[asker].on_reply(send.reply_to.key, None, self.now_ms)
            return
        self._last_own_id += 1
        self._askers[self._last_own_id] = asker, send
        key = schema_of(type(send.message)).api_key
        assert key is not None
        request = wire_request(self._last_own_id, key, ALL_APIS[key].versions.highest, send.message)
        broker = self.brokers.requests[send.target.node_id]
        self._take(send.target.node_id, broker.on_request(request, self.brokers.image, self.now_ms))

    def _take(self, broker_id: int, outcome: object) -> None:
        if outcome is None:
            return
        assert isinstance(outcome, Answer), (broker_id, outcome)
        if outcome.request_id < _OF_BROKERS:
            assert outcome.request_id not in self.answers, "answered twice"
            self.answers[outcome.request_id] = outcome.message
            return
        asker, send = self._askers.pop(outcome.request_id)
        self.brokers.requests[asker].on_reply(send.reply_to.key, outcome.message, self.now_ms)
