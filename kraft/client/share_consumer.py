"""A member of a share group, as the user has it (Kafka: `KafkaShareConsumer`, KIP-932)."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

from kraft.client.driver import Driver
from kraft.client.state.errors import ClientError
from kraft.client.state.positions import ConsumedRecord
from kraft.client.state.share_acks import Acknowledged, AcknowledgeType
from kraft.client.state.sharing import KEPT_FAILURES, ShareState
from transport.interface import Endpoint


class ShareConsumer:
    """Takes the records of a topic as the jobs of a queue, made by `Client.share` (Kafka: `KafkaShareConsumer`).

    Unless the settings are `explicit`, a record is accepted when the next ones are asked for. `release`, `reject` and
    `renew` say something else about it before. With `explicit`, a record stays with this member until `accept`,
    `release` or `reject`, until its lock ends, or until the end of the block; other records come meanwhile. Kafka's
    client refuses to go on before each record is acknowledged.

    None of these methods waits or fails. They are sent with the next fetch, or within 200 ms; `commit` waits for the
    outcomes, and `on_acknowledged` of `Client.share` gets each of them. Until its lock is over, no other member gets a
    record; a job that may take longer calls `renew` in time.
    """

    def __init__(
        self,
        state: ShareState,
        driver: Driver,
        now_ms: Callable[[], int],
        on_acknowledged: Callable[[Acknowledged], None] | None,
    ) -> None:
        self._state = state
        self._driver = driver
        self._now_ms = now_ms
        self._on_acknowledged = on_acknowledged
        self._last: Sequence[ConsumedRecord] = ()
        self._rest: deque[ConsumedRecord] = deque()
        self._refused: deque[Acknowledged] = deque(maxlen=KEPT_FAILURES)

    @property
    def member(self) -> str:
        """The id of this member in the group."""
        return self._state.member

    @property
    def assigned(self) -> tuple[int, ...] | None:
        """The partitions from which this member takes records; None before it has joined."""
        return None if self._state.assigned is None else tuple(sorted(self._state.assigned))

    @property
    def coordinator(self) -> Endpoint | None:
        """The broker that coordinates the group; None while the member looks for it."""
        return None if self._state.coordinator is None else Endpoint(*self._state.coordinator)

    @property
    def lock_ms(self) -> int | None:
        """How long a record is locked for this member, in ms; None before a leader has answered."""
        return self._state.lock_ms

    async def batch(self) -> Sequence[ConsumedRecord]:
        """Wait for the next records; unless `explicit`, those of the last batch are accepted then.

        Returns:
            At least one record. `ConsumedRecord.delivery_count` says how often it was handed out.

        Raises:
            ClientError: The member cannot go on, for example as no broker answers.
        """
        self._finish(self._last)
        self._last = ()
        if self._rest:
            self._last = tuple(self._rest)
            self._rest.clear()
            return self._last
        self._state.wants_records = True
        try:
            records = self._state.take_records(self._now_ms())
            self._driver.wake()
            while not records:
                await self._driver.wait_for_change()
                self._collect()
                records = self._state.take_records(self._now_ms())
        finally:
            self._state.wants_records = False
        self._last = records
        return records

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        """Each record, without an end; unless `explicit`, it is accepted when the next one is asked for."""
        while True:
            if not self._rest:
                self._rest.extend(await self.batch())
                self._last = ()
            record = self._rest.popleft()
            yield record
            self._finish((record,))

    def accept(self, record: ConsumedRecord) -> None:
        """Say that a record is done (Kafka: `AcknowledgeType.ACCEPT`)."""
        self._say(record, AcknowledgeType.ACCEPT)

    def release(self, record: ConsumedRecord) -> None:
        """Give a record back, so that any member gets it again, unless it was handed out too often already (Kafka:
        `AcknowledgeType.RELEASE`, `share.delivery.count.limit`).
        """
        self._say(record, AcknowledgeType.RELEASE)

    def reject(self, record: ConsumedRecord) -> None:
        """Say that no member is to get a record again (Kafka: `AcknowledgeType.REJECT`).

        The record goes to the dead-letter queue of the group, if there is one.
        """
        self._say(record, AcknowledgeType.REJECT)

    def renew(self, record: ConsumedRecord) -> None:
        """Keep a record for longer: its lock begins anew (Kafka: `AcknowledgeType.RENEW`, brokers from 4.2 on).

        If the lock is over already, the outcome says so, and what is said about the record later is refused.
        """
        self._say(record, AcknowledgeType.RENEW)

    def _say(self, record: ConsumedRecord, said: AcknowledgeType) -> None:
        self._state.say(record, said, self._now_ms())
        self._driver.wake()

    def _finish(self, records: Sequence[ConsumedRecord]) -> None:
        if records and not self._state.settings.explicit:
            self._state.finish(records, self._now_ms())
            self._driver.wake()

    def _collect(self) -> None:
        for outcome in self._state.take_outcomes():
            if outcome.failure is not None:
                self._refused.append(outcome)
            if self._on_acknowledged is not None:
                self._on_acknowledged(outcome)

    async def commit(self) -> tuple[Acknowledged, ...]:
        """Send what was acknowledged, and wait for the outcomes (Kafka: `commitSync`).

        Unless the settings are `explicit`, the records of the last batch are accepted before.

        Returns:
            The newest 1000 of what was refused since the last call; an empty tuple if everything is done.

        Raises:
            ClientError: The member cannot go on.
        """
        self._finish(self._last)
        self._state.commit()
        self._driver.wake()
        while not self._state.is_acknowledged:
            await self._driver.wait_for_change()
        self._driver.check()
        self._collect()
        refused = tuple(self._refused)
        self._refused.clear()
        return refused

    async def close(self) -> None:
        """Send what was acknowledged, give the other records back, and leave the group."""
        self._state.close()
        self._driver.wake()
        with suppress(ClientError):  # the member has told it before
            while not self._state.is_closed:
                await self._driver.wait_for_change()
        self._collect()
