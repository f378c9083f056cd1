"""The membership in a share group: its coordinator, its heartbeats, the partitions (Kafka: `ShareMembershipManager`).

There is nothing to hand over: several members may have one partition, and the leaders do not ask who is a member.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from random import Random
from typing import Final

from kraft.client.state.coordinators import KeyType, silence
from kraft.client.state.errors import cannot_connect, refused
from kraft.client.state.requests import ELSEWHERE, Address, Ask, pause_ms
from kraft.client.state.topic_view import TopicView
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS
from transport.protocol.errors import Error
from transport.protocol.inbound import LASTING, Failed
from transport.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from transport.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

JOINING: Final = 0
LEAVING: Final = -1
FIRST_BEAT_MS: Final = 250
"""When a member that has got no partitions asks again, twice as long each time: the coordinator lets the state of new
partitions begin first. Kafka's client waits for its next heartbeat.
"""
_NO_MEMBER: Final = frozenset({Error.UNKNOWN_MEMBER_ID, Error.FENCED_MEMBER_EPOCH})


class ShareMembership:
    """The conversation with the coordinator: one request is on its way at a time."""

    def __init__(
        self, group: str, view: TopicView, tokens: Iterator[int], *, rack: str | None, timeout_ms: int, rng: Random
    ) -> None:
        self.group = group
        self.member = base64.urlsafe_b64encode(rng.getrandbits(128).to_bytes(16, "big")).rstrip(b"=").decode()
        self.epoch = JOINING
        self.assigned: frozenset[int] | None = None
        """The partitions of this member; None before it has joined."""
        self.coordinator: Address | None = None
        self.is_closed = False
        self._view = view
        self._tokens = tokens
        self._rack = rack
        self._timeout_ms = timeout_ms
        self._asked: tuple[int, Message, Address] | None = None
        self._due_ms = 0
        self._beat_ms = 0
        self._failures = 0
        self._since_ms: int | None = None
        self._last_failure = ""
        self._empty_beats = 0
        self._is_leaving = False

    def leave(self) -> None:
        """Leave the group; `is_closed` says when that is done."""
        self._is_leaving = True
        self.is_closed = self.is_closed or (self._asked is None and self.epoch == JOINING)

    def deadline_ms(self) -> int:
        """The time of the next request, in ms."""
        if self._asked is not None or self.is_closed:
            return NEVER_MS
        is_idle = self.coordinator is not None and not self._is_leaving
        return max(self._due_ms, self._beat_ms) if is_idle else self._due_ms

    def poll(self, now_ms: int) -> list[Ask]:
        """The request that is due, if one is. Raises `ClientError` if no coordinator answers for too long."""
        if self._asked is not None or self.is_closed or now_ms < self._due_ms:
            return []
        self._since_ms = now_ms if self._since_ms is None else self._since_ms
        if self._failures and now_ms - self._since_ms >= self._timeout_ms:
            raise silence(KeyType.GROUP, self.group, self._timeout_ms, self._last_failure)
        message = self._next_request(now_ms)
        if message is None:
            self._since_ms = None
            return []
        to = self._view.any_broker() if self.coordinator is None else self.coordinator
        token = next(self._tokens)
        self._asked = token, message, to
        return [Ask(token, to, message, is_to_coordinator=True)]

    def _next_request(self, now_ms: int) -> Message | None:
        if self.coordinator is None:
            return FindCoordinatorRequest(coordinator_keys=[self.group])
        if self._is_leaving:
            return ShareGroupHeartbeatRequest(self.group, self.member, LEAVING)
        if now_ms < self._beat_ms:
            return None
        is_new = self.epoch == JOINING
        return ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member,
            member_epoch=self.epoch,
            rack_id=self._rack if is_new else None,
            subscribed_topic_names=[self._view.topic] if is_new else None,
        )

    def awaits(self, token: int) -> bool:
        """Whether this is the token of the request on its way."""
        return self._asked is not None and self._asked[0] == token

    def on_outcome(self, outcome: Message | Failed, now_ms: int) -> None:
        """Take the outcome of the request. Raises `ClientError` for one that time does not cure."""
        assert self._asked is not None
        _, request, address = self._asked
        self._asked = None
        if isinstance(outcome, Failed):
            if outcome.cause in LASTING and self._view.lasts(outcome, address, now_ms):
                raise cannot_connect(outcome)
            self._again(outcome.detail, now_ms, is_elsewhere=True)
            return
        error, text = _error_of(outcome)
        if error in ELSEWHERE or error.retriable:
            self._again(f"{type(request).__name__}: {error.name}", now_ms, is_elsewhere=error in ELSEWHERE)
        elif self._is_leaving and (error is not Error.NONE or isinstance(outcome, FindCoordinatorResponse)):
            self._on_end(error, outcome)
        elif error in _NO_MEMBER or (error is Error.GROUP_ID_NOT_FOUND and self.epoch != JOINING):
            self.epoch, self._beat_ms = JOINING, now_ms
        elif error is not Error.NONE:
            raise refused(f"share group {self.group}", error, text)
        else:
            self._on_success(request, outcome, now_ms)

    def _on_end(self, error: Error, answer: Message) -> None:
        """A member needs the coordinator to leave; one that is no member any longer has left."""
        self.is_closed = error is not Error.NONE or self.epoch == JOINING
        if isinstance(answer, FindCoordinatorResponse) and not self.is_closed:
            [one] = answer.coordinators
            self.coordinator = one.host, one.port

    def _on_success(self, request: Message, answer: Message, now_ms: int) -> None:
        self._due_ms = 0
        match answer:
            case FindCoordinatorResponse():
                [one] = answer.coordinators
                self.coordinator = one.host, one.port
            case ShareGroupHeartbeatResponse():
                assert isinstance(request, ShareGroupHeartbeatRequest)
                self._failures, self._since_ms = 0, None
                if request.member_epoch == LEAVING:
                    self.is_closed = True
                else:
                    self._on_beat(answer, now_ms)
            case other:
                raise AssertionError(other)

    def _on_beat(self, answer: ShareGroupHeartbeatResponse, now_ms: int) -> None:
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            mine = [one.partitions for one in answer.assignment.topic_partitions if one.topic_id == self._view.topic_id]
            self.assigned = frozenset(number for numbers in mine for number in numbers)
        if self.assigned:
            self._empty_beats = 0
            self._beat_ms = now_ms + answer.heartbeat_interval_ms
        else:
            self._beat_ms = now_ms + min(answer.heartbeat_interval_ms, FIRST_BEAT_MS << min(self._empty_beats, 16))
            self._empty_beats += 1

    def _again(self, why: str, now_ms: int, *, is_elsewhere: bool) -> None:
        self._last_failure = why
        self._due_ms = now_ms + pause_ms(self._failures)
        self._failures += 1
        if is_elsewhere:
            self.coordinator = None


def _error_of(answer: Message) -> tuple[Error, str | None]:
    match answer:
        case FindCoordinatorResponse():
            return Error.of(answer.coordinators[0].error_code), answer.coordinators[0].error_message
        case ShareGroupHeartbeatResponse():
            return Error.of(answer.error_code), answer.error_message
        case other:
            raise AssertionError(other)
