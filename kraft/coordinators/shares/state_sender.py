"""Calls the share coordinators of the cluster for this broker (Kafka: `PersisterStateManager`).

This broker's own coordinator is called without a message. Another broker has at most one request of each kind and group
under way; what is called meanwhile shares the next one. Calls for one share partition are carried out one after the
other. Kafka's brokers ask a random one for the coordinator; here the metadata says it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any, Final

from msgspec import Struct

from kraft.access.errors import ApiError
from kraft.agenda import Agenda, Slot
from kraft.coordinators.runtime.runtime import CoordinatorRuntime
from kraft.coordinators.runtime.shard import Context, CoordinatorResult
from kraft.coordinators.shares.persister import PersistedState, PersistedWrite, ShareKey, Summary
from kraft.coordinators.shares.state import ShareStates
from kraft.coordinators.shares.state_handler import act
from kraft.coordinators.shares.state_messages import (
    OF,
    Asked,
    Delete,
    Found,
    Initialize,
    Read,
    ReadSummary,
    request_of,
    results_of,
)
from kraft.coordinators.shares.state_shard import ShareStateShard
from kraft.handling.coordinators import SHARE, TOPICS, place_of
from kraft.handling.reply_keys import StatesAsked, to_broker
from kraft.limits import STATE_BATCHES_PER_REQUEST, STATES_PER_REQUEST, STATES_PLACED_PER_TURN
from kraft.partitions.lookup import is_known
from kraft.wire import Send, Target
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS
from transport.protocol.errors import Error

FIRST_PAUSE_MS: Final = 50
LONGEST_PAUSE_MS: Final = 5000
"""How long a call waits until it is tried again, twice as long each time. Kafka begins with a second."""
PATIENCE_MS: Final = 30_000
"""After so long a call is not tried again: five attempts of Kafka's take as long."""
TOPIC_PATIENCE_MS: Final = 5000
"""So long calls wait for the topic of the coordinators, from the first one on: it is there soon, or it cannot be made.
From then on, and until it is there, each call is refused at once with the error that Kafka tells after its attempts.
"""
_AGAIN: Final = frozenset((Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR))
_Way = tuple[int, type[Any], str]
"""The way to a broker: its id, the kind of request, and the group."""


class Call(Struct, eq=False):
    """One call of the persister."""

    key: ShareKey
    asked: Asked
    then: Callable[[Any, int], None]
    until_ms: int
    """When it is given up."""
    pause_ms: int = FIRST_PAUSE_MS
    is_given_up: bool = False


class _Own(Struct, frozen=True):
    """A call as an operation of this broker's own coordinator."""

    call: Call
    done: Callable[[Call, Found | Error], None]
    request = None

    def decide(self, shard: ShareStateShard, context: Context) -> CoordinatorResult:
        """Do what is asked."""
        return act(shard, self.call.key, self.call.asked, context)

    def tell(self, result: Found) -> None:
        """Pass on the result."""
        self.done(self.call, result)

    def refuse(self, refused: ApiError) -> None:
        """Pass on the error."""
        self.done(self.call, refused.error)


class StateSender:
    """The persister of one broker (`kraft.coordinators.shares.persister.Persister`).

    Args:
        agenda: What is due at the broker.
        runtime: The partitions of `__share_group_state` that this broker coordinates.
        broker_id: This broker.
        listener: The listener at which brokers reach each other.
        timeout_ms: How long one request may take, in ms.
        create: Asks for the topic of the coordinators, which does not exist.
    """

    def __init__(
        self,
        agenda: Agenda,
        runtime: CoordinatorRuntime[ShareStates],
        broker_id: int,
        listener: str,
        timeout_ms: int,
        create: Callable[[], None],
    ) -> None:
        self._agenda = agenda
        self._runtime = runtime
        self._broker_id = broker_id
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._create = create
        self._image = MetadataImage()
        self._calls: dict[ShareKey, deque[Call]] = {}
        """The calls for each share partition, of which the first one is carried out."""
        self._unplaced: deque[Call] = deque()
        """The calls of which the coordinator is to be looked up again."""
        self._placed: dict[_Way, deque[Call]] = {}
        """The calls for other brokers that are not sent."""
        self._busy: set[_Way] = set()
        self._sent: dict[StatesAsked, tuple[_Way, list[Call]]] = {}
        self._homeless: list[Call] = []
        """The calls that wait for the topic of the coordinators, all for the same one: none is tried by itself."""
        self._missed_ms: int | None = None
        """When the topic was missed first; None if it is there, or nobody has asked for it."""
        self._seek_ms = 0
        """When the topic is asked for again."""
        self._homeless_ms = 0
        """When there is something to do for the calls that wait for it."""
        self._seek_pause_ms = FIRST_PAUSE_MS
        self._room = STATES_PLACED_PER_TURN
        """So many calls are still placed before the next turn of this object."""
        self._later: list[tuple[int, int, Call]] = []
        """A heap of calls that are tried again, by time in ms and order."""
        self._ended: deque[tuple[Call, Found | Error]] = deque()
        self._order = 0

    def __len__(self) -> int:
        """The share partitions with a call that is not answered."""
        return len(self._calls)

    # ------------------------------------------------------------------------------------------------------- the calls

    def initialize(
        self, key: ShareKey, state_epoch: int, start_offset: int, now_ms: int, then: Callable[[Error, int], None]
    ) -> None:
        """As `Persister.initialize`."""
        self._call(key, Initialize(state_epoch, start_offset), _without_result(then), now_ms)

    def read(
        self, key: ShareKey, leader_epoch: int, now_ms: int, then: Callable[[PersistedState | Error, int], None]
    ) -> None:
        """As `Persister.read`."""
        self._call(key, Read(leader_epoch), then, now_ms)

    def write(self, key: ShareKey, written: PersistedWrite, now_ms: int, then: Callable[[Error, int], None]) -> None:
        """As `Persister.write`."""
        self._call(key, written, _without_result(then), now_ms)

    def summary(
        self, key: ShareKey, leader_epoch: int, now_ms: int, then: Callable[[Summary | Error, int], None]
    ) -> None:
        """As `Persister.summary`."""
        self._call(key, ReadSummary(leader_epoch), then, now_ms)

    def delete(self, key: ShareKey, now_ms: int, then: Callable[[Error, int], None]) -> None:
        """As `Persister.delete`."""
        self._call(key, Delete(), _without_result(then), now_ms)

    def _call(self, key: ShareKey, asked: Asked, then: Callable[[Any, int], None], now_ms: int) -> None:
        call = Call(key, asked, then, now_ms + PATIENCE_MS)
        waiting = self._calls.get(key)
        if waiting is not None:
            waiting.append(call)
            return
        self._calls[key] = deque((call,))
        if self._unplaced:
            self._unplaced.append(call)
        else:
            self._place(call, now_ms)

    # ------------------------------------------------------------------------------------------------- the coordinators

    def use(self, image: MetadataImage) -> None:
        """New metadata: coordinators may have changed, so that what waits is tried at once."""
        known, self._image = self._image, image
        if image.topics is known.topics and image.brokers is known.brokers:
            return
        self._unplaced.extend(call for _, _, call in sorted(self._later, key=lambda one: one[:2]))
        self._later = []
        if TOPICS[SHARE] in image.topics.by_name:
            self._unplaced.extend(self._homeless)
            self._homeless, self._missed_ms = [], None
        for placed in self._placed.values():
            self._unplaced.extend(placed)
        self._placed = {}
        if self._unplaced:
            self._agenda.now(Slot.STATES)

    def _place(self, call: Call, now_ms: int) -> None:
        """Carry out a call here, or let it wait for the next request to its coordinator.

        A group may call for thousands of share partitions. Those beyond a number wait in their order for the next turn.
        """
        if self._room <= 0:
            self._unplaced.append(call)
            self._agenda.now(Slot.STATES)
            return
        self._room -= 1
        topic_id = self._image.topics.by_name.get(TOPICS[SHARE])
        if topic_id is None:
            self._miss_topic(call, now_ms)
            return
        partitions = self._image.topics.by_id[topic_id].partitions
        number = self._runtime.number_of(call.key.name)
        leader = partitions[number].leader
        if leader == self._broker_id:
            self._runtime.write(number, _Own(call, self._note), now_ms)
        elif place_of(self._image, leader, self._listener) is None:
            self._wait_for_leader(call, now_ms)
        else:
            way = leader, type(call.asked), call.key.group_id
            self._placed.setdefault(way, deque()).append(call)
            if way not in self._busy:
                self._agenda.now(Slot.STATES)

    def _miss_topic(self, call: Call, now_ms: int) -> None:
        if self._missed_ms is None or now_ms > self._seek_ms + LONGEST_PAUSE_MS:
            # It was never missed, or nobody has asked for a while.
            self._missed_ms, self._seek_ms, self._seek_pause_ms = now_ms, now_ms, FIRST_PAUSE_MS
        self._homeless.append(call)
        self._seek_topic(now_ms)

    def _seek_topic(self, now_ms: int) -> None:
        """Ask for the topic if it is time, and refuse all calls that wait for it if it takes too long."""
        assert self._missed_ms is not None, "the topic is there"
        given_up_ms = self._missed_ms + TOPIC_PATIENCE_MS
        if now_ms >= self._seek_ms:
            self._create()
            self._seek_ms = now_ms + self._seek_pause_ms
            self._seek_pause_ms = min(2 * self._seek_pause_ms, LONGEST_PAUSE_MS)
        self._homeless_ms = min(self._seek_ms, given_up_ms)
        if now_ms >= given_up_ms:
            for call in self._homeless:
                self._give_up(call, Error.COORDINATOR_NOT_AVAILABLE)
            self._homeless = []
        else:
            self._agenda.by(Slot.STATES, self._homeless_ms)

    def _note(self, call: Call, result: Found | Error) -> None:
        """Keep the result of a call for the next turn of this object: whoever has called may call again then."""
        self._ended.append((call, result))
        self._agenda.now(Slot.STATES)

    def _try_again(self, call: Call, error: Error, now_ms: int) -> None:
        at_ms = now_ms + call.pause_ms
        if at_ms > call.until_ms:
            self._give_up(call, error)
            return
        call.pause_ms = min(2 * call.pause_ms, LONGEST_PAUSE_MS)
        self._hold(call, at_ms)

    def _wait_for_leader(self, call: Call, now_ms: int) -> None:
        """Wait for metadata with a leader: nothing else helps, so that the call is not tried meanwhile."""
        if now_ms >= call.until_ms:
            self._give_up(call, Error.COORDINATOR_NOT_AVAILABLE)
        else:
            self._hold(call, call.until_ms)

    def _give_up(self, call: Call, error: Error) -> None:
        call.is_given_up = True
        self._note(call, error)

    def _hold(self, call: Call, at_ms: int) -> None:
        self._order += 1
        heappush(self._later, (at_ms, self._order, call))
        self._agenda.by(Slot.STATES, at_ms)

    def due(self, image: MetadataImage, broker_epoch: int, now_ms: int) -> Iterator[Send]:
        """Tell what has ended, and send what is due."""
        while self._later and self._later[0][0] <= now_ms:
            self._unplaced.append(heappop(self._later)[2])
        self._room = STATES_PLACED_PER_TURN
        for _ in range(min(len(self._unplaced), STATES_PLACED_PER_TURN)):
            self._place(self._unplaced.popleft(), now_ms)
        self._tell(now_ms)
        if self._homeless:
            self._seek_topic(now_ms)
        for way in [one for one in self._placed if one not in self._busy]:
            yield from self._send(way, now_ms)
        self._agenda.by(Slot.STATES, self._next_ms())

    def _tell(self, now_ms: int) -> None:
        for _ in range(min(len(self._ended), STATES_PLACED_PER_TURN)):
            call, result = self._ended.popleft()
            if self._is_to_try_again(call, result):
                assert isinstance(result, Error), result
                self._try_again(call, result, now_ms)
                continue
            waiting = self._calls[call.key]
            assert waiting.popleft() is call, call
            if waiting:
                self._place(waiting[0], now_ms)
            else:
                del self._calls[call.key]
            call.then(result, now_ms)

    def _is_to_try_again(self, call: Call, result: Found | Error) -> bool:
        if not isinstance(result, Error) or call.is_given_up:
            return False
        if result is Error.UNKNOWN_TOPIC_OR_PARTITION:
            # The coordinator may not have heard of the topic yet.
            return is_known(self._image, (call.key.topic_id, call.key.partition))
        return result in _AGAIN

    def _send(self, way: _Way, now_ms: int) -> Iterator[Send]:
        placed, taken, left = self._placed[way], list[Call](), STATE_BATCHES_PER_REQUEST
        while placed and len(taken) < STATES_PER_REQUEST and left > 0:
            call = placed.popleft()
            taken.append(call)
            left -= len(call.asked.batches) if isinstance(call.asked, PersistedWrite) else 0
        if not placed:
            del self._placed[way]
        place = place_of(self._image, way[0], self._listener)
        if place is None:
            for call in taken:
                self._wait_for_leader(call, now_ms)
            return
        self._order += 1
        key = StatesAsked(self._order)
        self._sent[key] = way, taken
        self._busy.add(way)
        request = request_of([(one.key, one.asked) for one in taken])
        yield Send(request, to_broker(key), self._timeout_ms, Target(way[0], place[1].host, place[1].port))

    def on_reply(self, key: StatesAsked, message: Message | None, now_ms: int) -> None:
        """Take the answer of a coordinator; None if the request has failed."""
        way, taken = self._sent.pop(key)
        self._busy.discard(way)
        results = results_of(way[2], OF[way[1]], message)
        for call in taken:
            self._note(call, results.get(call.key, Error.COORDINATOR_NOT_AVAILABLE))

    def _next_ms(self) -> int:
        """When there is something to do, in ms."""
        if self._unplaced or self._ended or any(one not in self._busy for one in self._placed):
            return 0
        later_ms = self._later[0][0] if self._later else NEVER_MS
        return min(later_ms, self._homeless_ms) if self._homeless else later_ms


def _without_result(then: Callable[[Error, int], None]) -> Callable[[Any, int], None]:
    def ended(result: Any, now_ms: int) -> None:
        then(result if isinstance(result, Error) else Error.NONE, now_ms)

    return ended
