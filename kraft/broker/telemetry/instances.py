"""The clients that have asked what to push, for a while (Kafka: `ClientMetricsInstance`, `LRUCache`)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from kraft.broker.telemetry.subscriptions import Client, Wanted
from kraft.limits import TELEMETRY_INSTANCES
from metadata_log.types import Uuid
from transport.protocol.errors import Error

LEAST_KEPT_MS: Final = 60_000
_KEPT_INTERVALS: Final = 3
Connection = tuple[str, str]
"""A listener and the address of the peer there."""


class Instance(Struct, gc=False):
    """One client, and what it was told. Times are ms since 1970."""

    client: Client
    wanted: Wanted
    subscription_id: int
    version: int
    """The version of the subscriptions of which this is."""
    connection: Connection
    expires_ms: int = 0
    got_ms: int = 0
    """When it asked last and was not too early."""
    pushed_ms: int = 0
    is_terminating: bool = False
    last_error: Error = Error.NONE

    def may_get(self, now_ms: int) -> bool:
        """Whether the interval is over since the last request (`maybeUpdateGetRequestTimestamp`)."""
        if now_ms - max(self.got_ms, self.pushed_ms) < self.wanted.interval_ms:
            return False
        self.got_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Whether the interval is over since the last push; a push after a question may come at once, as clients add a
        jitter of their own to the interval (`maybeUpdatePushRequestTimestamp`).
        """
        if self.got_ms <= self.pushed_ms and now_ms - self.pushed_ms < self.wanted.interval_ms:
            return False
        self.pushed_ms = now_ms
        return True

    def keep(self, now_ms: int) -> None:
        """Forget it only after three more intervals without a request, and not before a minute is over."""
        self.expires_ms = now_ms + max(LEAST_KEPT_MS, _KEPT_INTERVALS * self.wanted.interval_ms)


class Instances:
    """The clients by their ids, at most as many as Kafka keeps; the one that asked longest ago gives way.

    Kafka has a timer for each. Here one that has expired is overlooked, and gives way first.
    """

    def __init__(self) -> None:
        self._all: OrderedDict[Uuid, Instance] = OrderedDict()
        self._of_connection: dict[Connection, Uuid] = {}

    def get(self, client_id: Uuid, now_ms: int) -> Instance | None:
        """The instance with this id, which has now asked."""
        found = self._all.get(client_id)
        if found is None:
            return None
        if found.expires_ms <= now_ms:
            self.remove(client_id)
            return None
        self._all.move_to_end(client_id)
        return found

    def put(self, client_id: Uuid, instance: Instance) -> None:
        """Remember an instance, in place of one with the same id."""
        self.remove(client_id)
        self._all[client_id] = instance
        self._of_connection[instance.connection] = client_id
        if len(self._all) > TELEMETRY_INSTANCES:
            self.remove(next(iter(self._all)))

    def remove(self, client_id: Uuid) -> None:
        """Forget an instance; an unknown id is allowed."""
        gone = self._all.pop(client_id, None)
        if gone is not None and self._of_connection.get(gone.connection) == client_id:
            del self._of_connection[gone.connection]

    def on_closed(self, connection: Connection) -> None:
        """A connection is gone, and with it the instance that has begun there."""
        client_id = self._of_connection.pop(connection, None)
        if client_id is not None:
            self._all.pop(client_id, None)

    def live(self, now_ms: int) -> int:
        """How many there are that have not expired."""
        return sum(one.expires_ms > now_ms for one in self._all.values())

    def __iter__(self) -> Iterator[Uuid]:
        """The ids, those that asked longest ago first."""
        return iter(self._all)

    def __len__(self) -> int:
        """How many there are, with those that have expired."""
        return len(self._all)
