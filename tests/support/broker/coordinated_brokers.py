"""Three brokers that coordinate transactions, in virtual time: each request of one to another arrives when a test says
so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from kraft.access.authorizer import AuthorizerSettings
from kraft.config.group_settings import GroupConfig
from kraft.config.transaction_settings import TransactionConfig
from kraft.wire import Answer, Send
from metadata_log.records.metadata import FeatureLevelRecord
from metadata_log.serde import Message
from metadata_log.serde.fields import schema_of
from support.broker.request_brokers import BROKERS, LISTENER, START_MS, Brokers, NewTopic, topic_id, wire_request
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from transport.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

STATE, GROUPS, OUT, IN = map(topic_id, range(1, 5))
_INTERNAL = 10_000_000
"""The first id of a request of a broker."""


class Coordinated:
    """Brokers with the topics of both coordinators, and two of clients.

    Args:
        state: The replicas of each partition of `__transaction_state`.
        version: The level of `transaction.version`.
        out: The replicas of each partition of the topic `out`.
        groups: The replicas of each partition of `__consumer_offsets`.
        authorizer: The settings of an authorizer; None if everything is allowed.
        more: Further topics.
        settings: Settings of the brokers, besides those of the transaction coordinator.
        changes: Settings of the transaction coordinator.
    """

    def __init__(
        self,
        state: tuple[tuple[int, ...], ...] = ((101, 102),),
        version: int = 2,
        out: tuple[tuple[int, ...], ...] = ((102, 103), (103, 101), (101, 102)),
        groups: tuple[tuple[int, ...], ...] = ((101,), (102,), (103,)),
        authorizer: AuthorizerSettings | None = None,
        more: Iterable[NewTopic] = (),
        settings: Mapping[str, Any] = MappingProxyType({}),
        **changes: Any,
    ) -> None:
        topics = [
            NewTopic("__transaction_state", STATE, state, {"cleanup.policy": "compact"}),
            NewTopic("__consumer_offsets", GROUPS, groups, {"cleanup.policy": "compact"}),
            NewTopic("out", OUT, out),
            NewTopic("in", IN, ((101,), (102,), (103,))),
            *more,
        ]
        self.brokers = Brokers(
            topics,
            authorizer=authorizer,
            transactions=TransactionConfig(**changes),
            groups=GroupConfig(),
            **settings,
        )
        self.brokers.change(FeatureLevelRecord(name="transaction.version", feature_level=version))
        self.sends: deque[tuple[int, Send]] = deque()
        """The requests between brokers that have not arrived, with who sent them."""
        self.answers: dict[int, Message] = {}
        self.dead: set[int] = set()
        self._waiting: dict[int, tuple[int, Send]] = {}
        self._last_id = _INTERNAL
        self._blocks = 0
        self.settle()

    def turn(self) -> bool:
        """One turn of each broker, and a fetch of each follower; returns whether something came of it."""
        moved = False
        for one in BROKERS:
            if one in self.dead:
                continue
            for outcome in self.brokers.poll(one):
                moved = True
                self._end(one, outcome)
            for send in self.brokers.due(one):
                moved = True
                if isinstance(send.message, AllocateProducerIdsRequest):
                    self._blocks += 1
                    block = AllocateProducerIdsResponse(producer_id_start=1000 * self._blocks, producer_id_len=1000)
                    self.brokers.requests[one].on_reply(send.reply_to.key, block, self.brokers.now_ms)
                else:
                    self.sends.append((one, send))
        keys = list(self.brokers.managers[101].partitions) + list(self.brokers.managers[102].partitions)
        alive = tuple(one for one in BROKERS if one not in self.dead)
        self.brokers.replicate(*dict.fromkeys([*keys, *self.brokers.managers[103].partitions]), by=alive)
        return moved

    def _end(self, broker: int, outcome: Any) -> None:
        assert isinstance(outcome, Answer), outcome
        found = self._waiting.pop(outcome.request_id, None)
        if found is None:
            self.answers[outcome.request_id] = outcome.message
        elif found[0] not in self.dead:
            asker, send = found
            self.brokers.requests[asker].on_reply(send.reply_to.key, outcome.message, self.brokers.now_ms)

    def settle(self, *, markers: bool = True, after_ms: int = 0) -> None:
        """Let everything arrive and be answered, but for markers if they are to wait."""
        self.brokers.now_ms += after_ms
        idle = 0
        for _ in range(200):
            moved = self.turn()
            for _ in range(len(self.sends)):
                asker, send = self.sends.popleft()
                if isinstance(send.message, WriteTxnMarkersRequest) and not markers:
                    self.sends.append((asker, send))
                    continue
                moved = True
                self._deliver(asker, send)
            self.brokers.now_ms += 1
            # What the followers have fetched in one turn ends waits in the next one.
            idle = 0 if moved else idle + 1
            if idle == 3:
                return
        raise AssertionError("something never ends")

    def _deliver(self, asker: int, send: Send) -> None:
        assert send.target is not None, send
        target, key = send.target.node_id, schema_of(type(send.message)).api_key
        assert key is not None, send
        if target in self.dead or asker in self.dead:
            if asker not in self.dead:
                self.brokers.requests[asker].on_reply(send.reply_to.key, None, self.brokers.now_ms)
            return
        self._last_id += 1
        self._waiting[self._last_id] = asker, send
        version = ALL_APIS[key].versions.highest
        request = wire_request(self._last_id, key, version, send.message)
        outcome = self.brokers.requests[target].on_request(request, self.brokers.image, self.brokers.now_ms)
        if outcome is not None:
            self._end(target, outcome)

    def ask(self, broker: int, message: Message, version: int | None = None, *, markers: bool = True) -> Any:
        """The answer to a request, after everything else that follows."""
        request_id, outcome = self.brokers.send(broker, message, version)
        if isinstance(outcome, Answer):
            self.answers[request_id] = outcome.message
        self.settle(markers=markers)
        return self.answers.pop(request_id)


__all__ = ["GROUPS", "IN", "LISTENER", "OUT", "START_MS", "STATE", "Coordinated"]
