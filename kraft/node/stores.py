"""The task that keeps the certificates of a running node: reads changed stores, and warns of those that end soon.

Kafka: `DynamicBrokerConfig`, `SslFactory.reconfigure`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

import trio

from kraft.config.tls_settings import is_reloadable
from kraft.node.logging import NodeLog
from kraft.security.certificates import NEAR_END, validity_warning
from kraft.security.contexts import LoadedTls, TlsFacts
from kraft.security.reload import LOOK_SECONDS, Kept, Replaced, Stores
from metadata_log.image import MetadataImage, ResourceType
from transport.wire import WireTransport


class StoreKeeper:
    """Keeps the stores of one node; `run` is its task. `ask` makes the task read all stores at once."""

    def __init__(self, stores: Stores, node_id: int) -> None:
        self._stores = stores
        self._resource = (ResourceType.BROKER, str(node_id))
        self._asked = trio.Event()
        self._replaced = self._kept = 0
        self._told_days = _days(stores.loaded, datetime.now(UTC))
        """The whole days until the end of each certificate that is near its end, as they were told last."""

    def ask(self) -> None:
        """Read all stores now (SIGHUP), whether or not a file has changed."""
        self._asked.set()

    async def run(
        self, transport: WireTransport, log: NodeLog, image: Callable[[], MetadataImage] | None = None
    ) -> None:
        """Look at the files, and at the node's dynamic configuration in the committed metadata, every second."""
        while True:
            with trio.move_on_after(LOOK_SECONDS):
                await self._asked.wait()
            is_asked = self._asked.is_set()
            if is_asked:
                self._asked = trio.Event()
            if self._stores.look(self._values(image), at_once=is_asked):
                # In a thread: stores with passwords take up to some hundred milliseconds.
                match await trio.to_thread.run_sync(self._stores.read, abandon_on_cancel=True):
                    case Replaced(loaded=loaded, files=files):
                        assert loaded.tls is not None
                        transport.replace_tls(loaded.tls)
                        self._replaced += 1
                        _tell(log, loaded, files)
                        self._told_days = {}
                    case Kept(why=why):
                        self._kept += 1
                        log.write("stores-kept", {"why": repr(why)}, logging.WARNING)
                    case None:
                        pass
            self._warn(log)

    def facts(self) -> TlsFacts:
        """The facts about the stores that the metrics show."""
        return TlsFacts(self._stores.loaded, self._replaced, self._kept)

    def _values(self, image: Callable[[], MetadataImage] | None) -> dict[str, str]:
        """The stores in the dynamic configuration of this node (`kafka-configs --entity-type brokers`)."""
        values = {} if image is None else image().configs.of(self._resource)
        return {key: values[key] for key in values if is_reloadable(key)}

    def _warn(self, log: NodeLog) -> None:
        """One line a day for each certificate that is near its end."""
        days = _days(self._stores.loaded, datetime.now(UTC))
        for own in self._stores.loaded.own:
            if own.key in days and days[own.key] != self._told_days.get(own.key):
                why = validity_warning(own.certificate)
                log.write("certificate", {"setting": own.key, "why": repr(why)}, logging.WARNING)
        self._told_days = days


def _days(loaded: LoadedTls, now: datetime) -> dict[str, int]:
    left = {own.key: own.certificate.ends - now for own in loaded.own}
    return {key: until.days for key, until in left.items() if until < NEAR_END}


def _tell(log: NodeLog, loaded: LoadedTls, files: tuple[str, ...]) -> None:
    facts: dict[str, object] = {"files": ",".join(files)}
    for own in loaded.own:
        facts[own.key] = f"until:{own.certificate.ends:%Y-%m-%dT%H:%M:%SZ}"
    log.write("stores-replaced", facts)
