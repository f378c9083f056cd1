"""A DCS module of Patroni: what a cluster of PostgreSQL agrees on stands in a `kraft.Store`, in the Patroni processes.

Patroni looks for such modules in its own package, so that this one has to be put there: run
`python -m kraft.adapters.patroni` in the place of `patroni`, and `python -m kraft.adapters.patroni ctl` in that of
`patronictl`. The section of the configuration is

    kraft:
      url: kraft:///etc/patroni/c1.properties

with a URL as `kraft.adapters.reach` reads it. The leader's key and those of members have leases that Patroni's own
loop renews, so that a Patroni that hangs loses them.
"""

from __future__ import annotations

import atexit
import json
import logging
import sys
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress
from types import ModuleType
from typing import Any, Final, TypeVar

import patroni.dcs
from patroni import dynamic_loader
from patroni.dcs import (
    AbstractDCS,
    Cluster,
    ClusterConfig,
    Failover,
    Leader,
    Member,
    Status,
    SyncState,
    TimelineHistory,
)
from patroni.exceptions import DCSError
from patroni.postgresql.mpp import AbstractMPP

from kraft.adapters.reach import store_at
from kraft.admin.errors import NoController
from kraft.node.errors import NodeError
from kraft.state_machine import CommandRefused
from kraft.store.commands import Entry, Event
from kraft.store.errors import Compacted, Conflict, LeaseLost, StoreError
from kraft.store.store import Lease, Store
from kraft.trio_thread import Forked, LoopEnded

T = TypeVar("T")
MODULE: Final = "patroni.dcs.kraft"
_TTL: Final = 30
_RETRY_TIMEOUT: Final = 10
_SHORT: Final = 1.0
"""Seconds for a write that Patroni repeats soon anyway."""
logger = logging.getLogger(__name__)


class KraftError(DCSError):  # type: ignore[misc]  # its base has no types
    """The store could not be asked, or refused."""


class Kraft(AbstractDCS):  # type: ignore[misc]  # its base has no types
    """The DCS; see the module."""

    def __init__(self, config: dict[str, Any], mpp: AbstractMPP) -> None:
        super().__init__(config, mpp)
        self._ttl = int(config.get("ttl") or _TTL)
        self._retry_timeout = float(config.get("retry_timeout") or _RETRY_TIMEOUT)
        self._leader_lease: Lease | None = None
        self._member_lease: Lease | None = None
        self._opened = ExitStack()
        while True:
            try:
                self._store = self._opened.enter_context(store_at(config["url"]))
                break
            except NoController as failure:
                if self._ctl:
                    raise KraftError(str(failure)) from failure
                logger.info("waiting on kraft: %s", failure)
        atexit.register(self.close)
        if not self._ctl:
            # A thread, and not a task of the store: `event` belongs to threads.
            watch = self._store.watch(f"{self._base_path}/")
            threading.Thread(target=self._follow, args=(watch,), name="kraft-watch", daemon=True).start()

    def close(self) -> None:
        """End the node of the store, if no one else of this process uses it."""
        atexit.unregister(self.close)
        self._opened.close()

    # Calls

    def _call(self, function: Callable[[Store], Awaitable[T]], timeout: float | None = None) -> T:
        """Run a function in the thread of the store. Raises `KraftError`."""
        store = self._store.within(self._retry_timeout if timeout is None else timeout)
        try:
            return store.call(lambda: function(store.trio))
        except TimeoutError:
            raise KraftError("no quorum has answered in time") from None
        except (StoreError, CommandRefused, NodeError, LoopEnded, Forked) as failure:
            raise KraftError(str(failure)) from failure

    def _try(self, function: Callable[[Store], Awaitable[object]], timeout: float | None = None) -> bool:
        """Whether a change was made: not if a condition does not hold, nor without a quorum."""

        async def change(store: Store) -> bool:
            with suppress(Conflict):
                return await function(store) is not False
            return False

        try:
            return self._call(change, timeout)
        except KraftError as failure:
            logger.warning("%s", failure)
            return False

    def _set(self, key: str, value: str, version: int | None = None, timeout: float | None = None) -> bool:
        return self._try(lambda store: store.put(key, value.encode(), if_version=version), timeout)

    # Settings

    def set_ttl(self, ttl: int) -> bool | None:
        """Set how long keys live that are not renewed; leases that exist get it when they are begun anew."""
        changed = ttl != self._ttl
        self._ttl = ttl
        return changed

    @property
    def ttl(self) -> int:
        """How long keys live that are not renewed, in seconds."""
        return self._ttl

    def set_retry_timeout(self, retry_timeout: int) -> None:
        """Set how long a call waits for the quorum, in seconds."""
        self._retry_timeout = retry_timeout

    # Reading

    def _load_cluster(self, path: str, loader: Callable[[str], Any]) -> Any:
        return loader(path)

    def _entries(self, path: str) -> dict[str, Entry]:
        """The keys below a path, by the rest of their names."""

        async def scan(store: Store) -> list[Entry]:
            return [entry async for entry in store.entries(path)]

        return {entry.key.removeprefix(path): entry for entry in self._call(scan)}

    def _postgresql_cluster_loader(self, path: str) -> Cluster:
        entries = self._entries(path)
        return self._cluster_of(entries) if entries else Cluster.empty()

    def _mpp_cluster_loader(self, path: str) -> dict[int, Cluster]:
        groups: dict[int, dict[str, Entry]] = defaultdict(dict)
        for key, entry in self._entries(path).items():
            group, _, name = key.partition("/")
            if name and self._mpp.group_re.match(group):
                groups[int(group)][name] = entry
        return {group: self._cluster_of(entries) for group, entries in groups.items()}

    def _cluster_of(self, entries: Mapping[str, Entry]) -> Cluster:
        def text(name: str) -> str | None:
            entry = entries.get(name)
            return None if entry is None else entry.value.decode()

        def node(kind: Any, name: str) -> Any:
            entry = entries.get(name)
            return None if entry is None else kind.from_node(entry.version, entry.value.decode())

        members = [
            Member.from_node(entry.version, key.removeprefix(self._MEMBERS), entry.lease, entry.value.decode())
            for key, entry in entries.items()
            if key.startswith(self._MEMBERS) and key.count("/") == 1
        ]
        leader = None
        if (held := entries.get(self._LEADER)) is not None:
            name = held.value.decode()
            known = [member for member in members if member.name == name]
            leader = Leader(held.version, held.lease, known[0] if known else Member(-1, name, None, {}))
        sync = entries.get(self._SYNC)
        failsafe = None
        with suppress(ValueError):
            failsafe = json.loads(text(self._FAILSAFE) or "null")
        return Cluster(
            text(self._INITIALIZE),
            node(ClusterConfig, self._CONFIG),
            leader,
            Status.from_node(text(self._STATUS) or text(self._LEADER_OPTIME)),
            members,
            node(Failover, self._FAILOVER),
            SyncState.from_node(sync and sync.version, sync and sync.value.decode()),
            node(TimelineHistory, self._HISTORY),
            failsafe,
        )

    # The leader, and members

    async def _renewed(self, store: Store, lease: Lease | None) -> Lease:
        """The lease, with its time begun anew; a new one if there is none any more, or the time is another one."""
        if lease is not None and lease.ttl == self._ttl:
            with suppress(LeaseLost):
                await store.renew(lease)
                return lease
        return await store.grant(self._ttl)

    def attempt_to_acquire_leader(self) -> bool:
        """Become the leader if there is none."""

        async def acquire(store: Store) -> bool:
            lease = self._leader_lease = await self._renewed(store, self._leader_lease)
            with suppress(Conflict):
                await store.put(self.leader_path, self._name.encode(), if_absent=True, lease=lease)
                return True
            return False

        return self._call(acquire)

    def _update_leader(self, leader: Leader) -> bool:
        async def update(store: Store) -> bool:
            lease = self._leader_lease = await self._renewed(store, self._leader_lease)
            entry = await store.get(self.leader_path)
            if entry is not None and (entry.value != self._name.encode() or entry.lease == lease.id):
                return bool(entry.value == self._name.encode())
            # It has ended, or is of an earlier process or lease of this member.
            version = 0 if entry is None else entry.version
            with suppress(Conflict):
                await store.put(self.leader_path, self._name.encode(), if_version=version, lease=lease)
                return True
            return False

        return self._call(update)

    def take_leader(self) -> bool:
        """Become the leader, whoever leads."""

        async def take(store: Store) -> None:
            lease = self._leader_lease = await self._renewed(store, self._leader_lease)
            await store.put(self.leader_path, self._name.encode(), lease=lease)

        return self._try(take)

    def _delete_leader(self, leader: Leader) -> bool:
        return self._try(lambda store: store.delete(self.leader_path, if_value=self._name.encode()), _SHORT)

    def touch_member(self, data: dict[str, Any]) -> bool:
        """Tell what is known of this member, which is a member as long as it repeats that."""
        value = json.dumps(data, separators=(",", ":")).encode()

        async def touch(store: Store) -> None:
            lease = self._member_lease = await self._renewed(store, self._member_lease)
            entry = await store.get(self.member_path)
            if entry is None or (entry.value, entry.lease) != (value, lease.id):
                await store.put(self.member_path, value, lease=lease)

        return self._try(touch, 2 * _SHORT)

    # Other keys

    def initialize(self, create_new: bool = True, sysid: str = "") -> bool:
        """Be the one that initializes the cluster, or note its system identifier."""

        async def note(store: Store) -> bool:
            entry = await store.get(self.initialize_path)
            if create_new == (entry is not None):
                return False
            version = 0 if entry is None else entry.version
            return await store.put(self.initialize_path, sysid.encode(), if_version=version) > 0

        return self._try(note)

    def cancel_initialization(self) -> bool:
        """Let another one initialize the cluster."""
        return self._try(lambda store: store.delete(self.initialize_path))

    def delete_cluster(self) -> bool:
        """Forget the cluster."""
        path = self.client_path("")
        return self._try(lambda store: store.clear(path))

    def set_failover_value(self, value: str, version: int | None = None) -> bool:
        """Ask for a failover."""
        return self._set(self.failover_path, value, version)

    def set_config_value(self, value: str, version: int | None = None) -> bool:
        """Set the dynamic configuration."""
        return self._set(self.config_path, value, version)

    def set_history_value(self, value: str) -> bool:
        """Set the history of timelines."""
        return self._set(self.history_path, value)

    def set_sync_state_value(self, value: str, version: int | None = None) -> int | bool:
        """Set the state of synchronous replication; returns its version."""

        async def put(store: Store) -> int | bool:
            with suppress(Conflict):
                return await store.put(self.sync_path, value.encode(), if_version=version)
            return False

        try:
            return self._call(put)
        except KraftError as failure:
            logger.warning("%s", failure)
            return False

    def delete_sync_state(self, version: int | None = None) -> bool:
        """Delete the state of synchronous replication."""
        return self._try(lambda store: store.delete(self.sync_path, if_version=version))

    def _write_leader_optime(self, last_lsn: str) -> bool:
        return self._set(self.leader_optime_path, last_lsn, timeout=_SHORT)

    def _write_status(self, value: str) -> bool:
        return self._set(self.status_path, value, timeout=_SHORT)

    def _write_failsafe(self, value: str) -> bool:
        return self._set(self.failsafe_path, value, timeout=_SHORT)

    # Waking Patroni's loop

    def watch(self, leader_version: int | None, timeout: float) -> bool:
        """Wait until something has changed that this member should look at, or the time is over."""
        try:
            return bool(super().watch(leader_version, timeout))
        finally:
            self.event.clear()

    def _follow(self, watch: Any) -> None:
        while True:
            try:
                for change in watch:
                    if self._is_news(change):
                        self.event.set()
                return
            except Compacted:
                self.event.set()
                watch = self._store.watch(f"{self._base_path}/")
            except (NodeError, Forked) as failure:
                logger.error("changes are seen no more: %s", failure)
                return

    def _is_news(self, change: Event) -> bool:
        """Whether Patroni's loop has to run before its time."""
        if change.key == self.leader_path:
            return bool(change.value != self._name.encode())
        if change.key in (self.config_path, self.sync_path, self.failover_path):
            return True
        if change.value is None or change.key == self.member_path:
            return False
        if change.key.startswith(self.members_path):
            entry = self._store.get(change.key, linearizable=False)
            return entry is not None and entry.created == change.revision
        return bool(change.key in (self.status_path, self.leader_optime_path) and not self._leads())

    def _leads(self) -> bool:
        leader = self._store.get(self.leader_path, linearizable=False)
        return leader is not None and leader.value == self._name.encode()


def register() -> None:
    """Put this module among those in which Patroni looks for a DCS. A second call does nothing."""
    if MODULE in sys.modules:
        return
    original = dynamic_loader.iter_modules

    def iter_modules(package: str) -> list[str]:
        return [*original(package), *([MODULE] if package == patroni.dcs.__name__ else [])]

    # Patroni takes the class whose name is that of its module.
    module = sys.modules[MODULE] = ModuleType(MODULE, __doc__)
    module.__dict__["Kraft"] = Kraft
    dynamic_loader.iter_modules = patroni.dcs.iter_modules = iter_modules


def main() -> None:
    """Run Patroni, or `patronictl` if the first argument is `ctl`."""
    register()
    if sys.argv[1:2] == ["ctl"]:
        from patroni.ctl import ctl

        del sys.argv[1]
        ctl(prog_name="patronictl")
    else:
        from patroni.__main__ import main as run

        run()
