"""The state of a consumer of a share group (Kafka: `ShareConsumerImpl`, KIP-932).

The partitions come from the coordinator, and each of their leaders hands out records under locks. The user's
acknowledgements travel with the next fetch from that leader, or alone, soon or when the user waits for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count
from random import Random
from typing import Final

from msgspec import Struct

from kraft.client.state.consuming import BUFFERED_RECORDS, damaged
from kraft.client.state.errors import ClientError, cannot_connect, refused
from kraft.client.state.positions import ConsumedRecord
from kraft.client.state.requests import REQUEST_TIMEOUT_MS, Address, Ask, pause_ms
from kraft.client.state.share_acks import Acknowledged, AcknowledgeType, Sent
from kraft.client.state.share_members import ShareMembership
from kraft.client.state.share_session import (
    Acquired,
    AcquireMode,
    Asked,
    Limits,
    ShareSession,
    acquired_of,
)
from kraft.client.state.topic_view import TopicView
from metadata_log.errors import MetadataLogError
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, Uuid
from transport.protocol.errors import Error
from transport.protocol.inbound import LASTING, Failed
from transport.protocol.messages.share_acknowledge import ShareAcknowledgeResponse
from transport.protocol.messages.share_fetch import PartitionData, ShareFetchResponse

FLUSH_MS: Final = 200
"""So long acknowledgements wait for a fetch that takes them along."""
WRITE_TIMEOUT_MS: Final = 35_000
"""How long a leader may take for acknowledgements: it waits up to 30 s for the coordinator of their state."""
KEPT_FAILURES: Final = 1_000
"""So many refused acknowledgements wait for the user; older ones are forgotten."""
_NO_SESSION: Final = frozenset(
    {
        Error.SHARE_SESSION_NOT_FOUND,
        Error.INVALID_SHARE_SESSION_EPOCH,
        Error.SHARE_SESSION_LIMIT_REACHED,
    }
)


class ShareSettings(Struct, frozen=True, kw_only=True):
    """How a member of a share group consumes.

    Args:
        explicit: Whether nothing is acknowledged without a word of the user (Kafka: `share.acknowledgement.mode`). If
            not, a record is accepted when the next ones are asked for, unless the user has said something else.
        mode: Whether leaders may hand out more than `max_records`, for the sake of whole batches.
        max_records: How many records a leader hands out at once (Kafka: `max.poll.records`).
        rack: The rack of the member, if it has one.
        timeout_ms: After so many milliseconds without an answer the consumer gives up.
    """

    explicit: bool = False
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED
    max_records: int = 500
    rack: str | None = None
    timeout_ms: int = 30_000


class ShareState:
    """The engine of a member of a share group; see `Engine`."""

    def __init__(
        self, topic: str, group: str, bootstrap: Sequence[Address], settings: ShareSettings, *, rng: Random
    ) -> None:
        self.settings = settings
        self.lock_ms: int | None = None
        """How long a lock lasts, in ms; None before the first answer of a leader."""
        self.wants_records = False
        """Whether the user waits for records: nothing is fetched ahead, as locks would run."""
        self._tokens = count(1)
        self._view = TopicView(topic, bootstrap, self._tokens, may_create=False)
        self._membership = ShareMembership(
            group, self._view, self._tokens, rack=settings.rack, timeout_ms=settings.timeout_ms, rng=rng
        )
        self._sessions: dict[Address, ShareSession] = {}
        self._topic_id = Uuid.ZERO
        self._answers: deque[tuple[ShareSession, Acquired]] = deque()
        self._outcomes: deque[Acknowledged] = deque(maxlen=KEPT_FAILURES)
        self._wants_commit = False
        self._is_closing = False
        self._turn = 0

    # What the user does

    @property
    def assigned(self) -> frozenset[int] | None:
        """The partitions of this member; None before it has joined."""
        return self._membership.assigned

    @property
    def member(self) -> str:
        """The id of this member."""
        return self._membership.member

    @property
    def coordinator(self) -> Address | None:
        """The broker that coordinates the group; None while it is looked for."""
        return self._membership.coordinator

    @property
    def is_closed(self) -> bool:
        """Whether the member has left."""
        return self._membership.is_closed

    @property
    def is_acknowledged(self) -> bool:
        """Whether each acknowledgement has its outcome."""
        return not any(one.ledger.has_news or (one.asked and one.asked.sent) for one in self._sessions.values())

    def take_records(self, now_ms: int) -> list[ConsumedRecord]:
        """Take records that have arrived, at most `BUFFERED_RECORDS`. Those whose locks are over are not among them."""
        taken: list[ConsumedRecord] = []
        try:
            while self._answers and len(taken) < BUFFERED_RECORDS:
                session, answer = self._answers[0]
                if now_ms < answer.until_ms:
                    taken += answer.take(BUFFERED_RECORDS - len(taken), session.ledger)
                if answer.is_empty or now_ms >= answer.until_ms:
                    self._answers.popleft()
        except MetadataLogError as bad:
            raise damaged(bad) from bad
        return taken

    def take_outcomes(self) -> list[Acknowledged]:
        """Take the outcomes of acknowledgements."""
        outcomes = list(self._outcomes)
        self._outcomes.clear()
        return outcomes

    def say(self, record: ConsumedRecord, said: AcknowledgeType, now_ms: int) -> None:
        """Acknowledge a record. If this member does not hold it any longer, that is an outcome, too."""
        for session in self._sessions.values():
            if session.ledger.holds(record.partition, record.offset, record.delivery_count):
                if not session.ledger.has_news:
                    session.flush_ms = now_ms + FLUSH_MS
                session.ledger.decide(record.partition, record.offset, said)
                return
        self._outcomes.append(
            Acknowledged(
                record.partition,
                (record.offset,),
                "the member does not hold this record: it is acknowledged already, or lost with a session",
                Error.INVALID_RECORD_STATE,
            )
        )

    def finish(self, records: Iterable[ConsumedRecord], now_ms: int) -> None:
        """Accept those of these records about which the user has said nothing."""
        for record in records:
            for session in self._sessions.values():
                where = record.partition, record.offset
                if session.ledger.holds(*where, record.delivery_count) and not session.ledger.is_decided(*where):
                    self.say(record, AcknowledgeType.ACCEPT, now_ms)

    def commit(self) -> None:
        """Send what the user has said as soon as possible; `is_acknowledged` says when it is done."""
        self._wants_commit = True

    def close(self) -> None:
        """Send what the user has said, give everything else back, and leave; `is_closed` says when that is done."""
        self._is_closing = True
        self.wants_records = False

    # The engine

    def deadline_ms(self) -> int:
        """The time of the next request, in ms."""
        moments = [self._view.deadline_ms(), self._membership.deadline_ms() if self._may_talk else NEVER_MS]
        return min(moments + [self._due_ms(one) for one in self._sessions.values()])

    @property
    def _may_talk(self) -> bool:
        """Whether the coordinator may be asked: the topic is known, and at the end no session is left."""
        return self._view.is_known and (not self._is_closing or self._are_sessions_closed)

    @property
    def _are_sessions_closed(self) -> bool:
        return all(one.is_closed for one in self._sessions.values())

    def poll(self, now_ms: int) -> list[Ask]:
        """The requests that are due."""
        asks = self._view.poll(now_ms)
        self._follow_topic()
        if self._is_closing and self._are_sessions_closed:
            self._membership.leave()
        if self._may_talk:
            asks += self._membership.poll(now_ms)
        # Another leader comes first each time, as only one is asked at once for a limited number of records.
        sessions = list(self._sessions.values())
        turn = self._turn % len(sessions) if sessions else 0
        for session in sessions[turn:] + sessions[:turn]:
            asks += self._ask(session, now_ms)
        if self.is_acknowledged:
            self._wants_commit = False
        return asks

    def on_outcome(self, token: int, outcome: Message | Failed, now_ms: int) -> None:
        """Take the outcome of a request."""
        if self._view.awaits(token):
            self._view.on_outcome(outcome, now_ms)
            return
        if self._membership.awaits(token):
            self._membership.on_outcome(outcome, now_ms)
            return
        session, asked = next(
            (one, one.asked) for one in self._sessions.values() if one.asked is not None and one.asked.token == token
        )
        session.asked = None
        match outcome:
            case Failed():
                self._on_lost(session, asked, outcome, now_ms)
            case ShareFetchResponse() | ShareAcknowledgeResponse():
                self._on_answer(session, asked, outcome, now_ms)
            case other:
                raise AssertionError(other)

    # Requests

    def _follow_topic(self) -> None:
        """Have a session with each leader. A topic that was made anew has none of the former records."""
        if self._view.topic_id != self._topic_id:
            self._topic_id = self._view.topic_id
            for session in self._sessions.values():
                self._lose(session, "the topic was made anew", None)
        for leader in self._view.leaders.values():
            if leader is not None and leader.address not in self._sessions and not self._is_closing:
                limits = Limits(self.settings.max_records, self.settings.mode)
                group = self._membership.group
                self._sessions[leader.address] = ShareSession(leader.address, group, self.member, limits)

    def _wanted(self, session: ShareSession) -> frozenset[int]:
        """The partitions of this member that the leader of the session leads."""
        return frozenset(
            number
            for number in self.assigned or ()
            if (leader := self._view.leader_of(number)) is not None and leader.address == session.address
        )

    def _fetches(self, session: ShareSession) -> bool:
        """Whether the next request of a session is to bring records."""
        is_turn = self.settings.mode is AcquireMode.BATCH_OPTIMIZED or not any(
            one.is_fetching for one in self._sessions.values()
        )
        return self.wants_records and not self._answers and is_turn and bool(self._wanted(session) | session.partitions)

    def _due_ms(self, session: ShareSession) -> int:
        """When the next request of a session is due, if nothing happens before."""
        if session.asked is not None or session.is_closed or (session.attempts and self._view.is_stale):
            return NEVER_MS
        has_news = session.ledger.has_news
        if self._is_closing or self._fetches(session) or (has_news and (self._wants_commit or session.ledger.renews)):
            return session.due_ms
        return max(session.due_ms, session.flush_ms) if has_news else NEVER_MS

    def _ask(self, session: ShareSession, now_ms: int) -> list[Ask]:
        if now_ms < self._due_ms(session):
            return []
        if session.since_ms is None:
            session.since_ms = now_ms
        elif session.attempts and now_ms - session.since_ms >= self.settings.timeout_ms:
            raise self._silence(session)
        is_final = self._is_closing
        if is_final and not session.is_open:
            self._lose(session, "the member has left", None)
            session.is_closed = True
            return []
        token = next(self._tokens)
        is_alone = is_final or (
            session.is_open and session.ledger.has_news and (self._wants_commit or session.ledger.renews)
        )
        if is_alone or (session.is_open and not self._fetches(session)):
            message = session.acknowledge(token, self._topic_id, is_final=is_final)
        else:
            acquires = self._fetches(session)
            self._turn += 1
            message = session.fetch(token, self._topic_id, self._wanted(session), acquires=acquires)
        assert session.asked is not None
        timeout_ms = WRITE_TIMEOUT_MS if session.asked.sent else REQUEST_TIMEOUT_MS
        return [Ask(token, session.address, message, timeout_ms)]

    def _silence(self, session: ShareSession) -> ClientError:
        seconds = self.settings.timeout_ms / 1000
        host, port = session.address
        return ClientError(
            f"{host}:{port} handed nothing out within {seconds:g} s: {self._view.last_failure or 'no answer'}",
            hint="Does this broker run?",
        )

    # Outcomes

    def _on_lost(self, session: ShareSession, asked: Asked, failed: Failed, now_ms: int) -> None:
        """The connection is gone, and with it the session: others get what this member holds."""
        self._tell(asked.sent, f"nobody knows whether this was done: {failed.detail}", None)
        self._lose(session, failed.detail, None)
        if self._is_closing:
            session.is_closed = True
        elif failed.cause in LASTING and self._view.lasts(failed, session.address, now_ms):
            raise cannot_connect(failed)
        self._again(session, failed.detail, now_ms)
        leaders = {one.address for one in self._view.leaders.values() if one is not None}
        if session.address not in leaders:
            self._sessions.pop(session.address)

    def _on_answer(
        self, session: ShareSession, asked: Asked, answer: ShareFetchResponse | ShareAcknowledgeResponse, now_ms: int
    ) -> None:
        error = Error.of(answer.error_code)
        if error in _NO_SESSION:
            # The leader has looked at nothing. Whether it still has the locks it says in the next session.
            session.reset()
            session.ledger.put_back(asked.sent, asked.sent.decisions.keys() | asked.sent.gaps.keys())
            self._again(session, f"{type(answer).__name__}: {error.name}", now_ms)
            return
        if error is not Error.NONE:
            self._tell(asked.sent, error.name, error)
            if not error.retriable and error is not Error.UNKNOWN_SERVER_ERROR:
                raise refused(f"share group {self._membership.group}", error, answer.error_message)
            session.reset()
            self._again(session, f"{type(answer).__name__}: {error.name}", now_ms)
            return
        session.on_taken(asked)
        if isinstance(answer, ShareFetchResponse):
            parts = {one.partition_index: one for topic in answer.responses for one in topic.partitions}
            codes = {number: one.acknowledge_error_code for number, one in parts.items()}
            self._on_acknowledged(session, asked.sent, codes)
            self.lock_ms = answer.acquisition_lock_timeout_ms or self.lock_ms
            for one in parts.values():
                self._on_partition(session, one, now_ms)
            if any(one.error_code for one in parts.values()):
                return
        else:
            codes = {one.partition_index: one.error_code for topic in answer.responses for one in topic.partitions}
            self._on_acknowledged(session, asked.sent, codes)
        session.on_served()

    def _on_acknowledged(self, session: ShareSession, sent: Sent, codes: dict[int, int]) -> None:
        for number, decided in sorted(sent.decisions.items()):
            offsets = tuple(sorted(decided))
            error = Error.of(codes[number]) if number in codes else Error.UNKNOWN_SERVER_ERROR
            if error is Error.NONE:
                self._outcomes.append(Acknowledged(number, offsets))
            else:
                session.ledger.let_go(number, offsets)
                self._outcomes.append(Acknowledged(number, offsets, error.name, error))

    def _on_partition(self, session: ShareSession, data: PartitionData, now_ms: int) -> None:
        error = Error.of(data.error_code)
        what = f"partition {self._view.topic}-{data.partition_index}"
        if error is not Error.NONE:
            if not error.retriable and error is not Error.UNKNOWN_SERVER_ERROR:
                raise refused(what, error, data.error_message)
            self._again(session, f"{what}: {error.name}", now_ms)
            return
        try:
            until_ms = now_ms + (self.lock_ms or NEVER_MS)
            acquired = acquired_of(data, until_ms, where=f"{what} of {session.address[0]}:{session.address[1]}")
        except MetadataLogError as bad:
            raise damaged(bad) from bad
        if acquired is not None:
            self._answers.append((session, acquired))

    def _again(self, session: ShareSession, why: str, now_ms: int) -> None:
        session.since_ms = now_ms if session.since_ms is None else session.since_ms
        session.due_ms = now_ms + pause_ms(session.attempts)
        session.attempts += 1
        self._view.refresh(why, now_ms)

    def _lose(self, session: ShareSession, why: str, error: Error | None) -> None:
        """Hold nothing from a leader any longer."""
        self._tell(Sent(session.ledger.lose(), {}), why, error)
        session.reset()
        self._answers = deque(one for one in self._answers if one[0] is not session)

    def _tell(self, sent: Sent, why: str, error: Error | None) -> None:
        for number, decided in sorted(sent.decisions.items()):
            self._outcomes.append(Acknowledged(number, tuple(sorted(decided)), why, error))
