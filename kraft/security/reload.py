"""Stores that change while a node runs: when to read them again, and whether the new ones may replace those in use.

Kafka: `SslFactory.reconfigure`, `SslFactory.SslEngineValidator`. A node of Kafka reads its stores again only when a
dynamic configuration tells the node to, and never those of its outgoing connections. Decision 0048 says what differs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from kraft.config.errors import ConfigError
from kraft.config.tls_settings import ConfigTls, TlsSettings
from kraft.security.certificates import Certificate, is_valid
from kraft.security.contexts import LoadedTls, OwnCertificate, load_tls
from transport.tls import TlsError, TlsListener, TlsSession

LOOK_SECONDS: Final = 1.0
"""The interval of looks at the files. A change is read when two looks in a row find the same files."""
_LOOKS_BETWEEN_TRIES: Final = 30
_MOST_STEPS: Final = 20
"""More than the messages of any handshake."""
_Stamp = tuple[tuple[str, int, int, int], ...]


class Replaced(Struct, frozen=True):
    """New stores were read, and may replace those in use."""

    loaded: LoadedTls
    files: tuple[str, ...]


class Kept(Struct, frozen=True):
    """New stores were read, and must not replace those in use."""

    why: str


class Stores:
    """The stores of a running node or client.

    Args:
        settings: The settings that name the stores.
        loaded: The result of `load_tls` for these settings.
    """

    def __init__(self, settings: ConfigTls, loaded: LoadedTls) -> None:
        self._settings = settings
        self.loaded = loaded
        """The values in use."""
        self._values: Mapping[str, str] = {}
        self._in_use = self._seen = self._stamp(settings)
        self._values_in_use: Mapping[str, str] = {}
        self._refused: str | None = None
        self._looks_to_wait = 0
        """How many looks until stores that were refused are read again: their time may have come."""

    def look(self, values: Mapping[str, str], *, at_once: bool = False) -> bool:
        """Whether to call `read`: a file or a value has changed. Looks at the names and times of files only.

        Args:
            values: The settings of the dynamic configuration, by key.
            at_once: Whether the caller knows that the files are complete, and wants them to be read.
        """
        found = self._stamp(self._settings_of(values) or self._settings)
        is_quiet = found == self._seen and dict(values) == self._values
        self._seen, self._values = found, dict(values)
        is_new = found != self._in_use or self._values != self._values_in_use
        if at_once:
            self._refused = None  # the user wants to know
            return True
        if not is_quiet:
            self._looks_to_wait = 0
            return False
        self._looks_to_wait -= 1
        return is_new and self._looks_to_wait < 0

    def read(self) -> Replaced | Kept | None:
        """Read all stores, and judge them together: all of them replace those in use, or none does.

        Takes some milliseconds, so that a node calls this in a thread. Returns None if the same stores are refused for
        the same reason as before, so that the reason is told once.
        """
        stamp, values = self._seen, self._values
        try:
            settings = self._altered(values)
            loaded = load_tls(settings)
            _check(settings, self.loaded, loaded)
        except ConfigError as bad:
            return self._keep(f"{bad}. {bad.hint}" if bad.hint else str(bad))
        except ValueError as bad:
            return self._keep(f"a store is not sound: {bad}")
        self.loaded, self._in_use, self._values_in_use, self._refused = loaded, stamp, values, None
        return Replaced(loaded, files_of(settings))

    def _keep(self, why: str) -> Kept | None:
        is_known = why == self._refused
        self._refused, self._looks_to_wait = why, _LOOKS_BETWEEN_TRIES
        return None if is_known else Kept(why)

    def _altered(self, values: Mapping[str, str]) -> ConfigTls:
        return self._settings.altered(values) if values and self._settings.altered is not None else self._settings

    def _settings_of(self, values: Mapping[str, str]) -> ConfigTls | None:
        try:
            return self._altered(values)
        except ConfigError:
            return None

    def _stamp(self, settings: ConfigTls) -> _Stamp:
        return tuple((path, *_times(path)) for path in files_of(settings))


def files_of(settings: ConfigTls) -> tuple[str, ...]:
    """The files of these settings, each once."""
    return tuple(dict.fromkeys(store.location for one in settings.every for store in one.stores if store.location))


def _times(path: str) -> tuple[int, int, int]:
    """The values that show a changed file: also where its name, or a directory, is a link that now leads elsewhere."""
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_ino, found.st_size)


def _check(settings: ConfigTls, old: LoadedTls, new: LoadedTls) -> None:
    """Raise `ConfigError` unless the new stores may replace the old ones.

    At a start, the same certificates are accepted: there are no better ones then.
    """
    now = datetime.now(UTC)
    for name, one in settings.listeners:
        _compare(one, old.listeners.get(name), new.listeners.get(name), now)
    for kind, client in settings.outgoing.items():
        if client is None:
            continue
        _compare(client, old.outgoing.get(kind), new.outgoing.get(kind), now)
        for name, one in settings.listeners:
            if one.stores != client.stores:
                continue  # another listener is not one for these peers
            if (why := _failure(new, name, kind)) is not None and _failure(old, name, kind) is None:
                store = client.truststore or client.keystore
                raise ConfigError(
                    f"listener {name}: this node could not connect to itself any more: {why}",
                    where=None if store is None else store.where,
                    hint="First trust the new authority beside the old one, then replace the certificate.",
                )


def _compare(settings: TlsSettings, old: OwnCertificate | None, new: OwnCertificate | None, now: datetime) -> None:
    if old is None and new is None:
        return
    where = None if settings.keystore is None else settings.keystore.where
    if old is None or new is None:
        raise ConfigError("a key store cannot be added or removed while the node runs", where=where)
    key, before, after = new.key, old.certificate, new.certificate
    if not is_valid(after, now):
        what = f"has expired at {after.ends}" if after.ends < now else f"is not valid before {after.begins}"
        raise ConfigError(f"{key}: the certificate {what}", where=where)
    if before.subject != after.subject and not settings.allows_dn_changes:
        raise ConfigError(
            f"{key}: the certificate is that of {after.subject}, and the one in use is that of {before.subject}",
            where=where,
            hint="Restart the node, or set ssl.allow.dn.changes=true.",
        )
    if (missing := _missing(before, after)) and not settings.allows_san_changes:
        raise ConfigError(
            f"{key}: the certificate does not name {', '.join(missing)}, as the one in use does",
            where=where,
            hint="Restart the node, or set ssl.allow.san.changes=true.",
        )


def _missing(before: Certificate, after: Certificate) -> list[str]:
    return sorted(before.names - after.names)


def _failure(loaded: LoadedTls, name: str, kind: str) -> str | None:
    """Why this node cannot connect to its own listener, as one of these peers, with these stores; None if it can.

    Nodes of a quorum have the same authorities, so that this is the best that a node can tell of its peers.
    """
    tls, own = loaded.tls, loaded.listeners.get(name)
    context = None if tls is None else tls.outgoing.get(kind)
    if tls is None or context is None or own is None:
        return None
    listener: TlsListener = tls.listeners[name]
    host = min(own.certificate.hosts, default="localhost").replace("*", "x")
    try:
        client, server = TlsSession(context, host), TlsSession(listener.context)
        for _ in range(_MOST_STEPS):
            for one, other in ((client, server), (server, client)):
                if not one.is_secured:
                    one.advance()
                if sealed := one.take():
                    other.receive(sealed)
            if client.is_secured and server.is_secured:
                _, failure = client.read()
                return None if failure is None else str(failure)
    except TlsError as failed:
        return str(failed)
    return "the handshake does not end"
