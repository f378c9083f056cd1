"""The settings of a node as they stand in its properties file, without the checks of `Config`.

A configuration that no node would accept is what `kraft doctor` has to describe, so nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

from msgspec import Struct

from kraft.config.addresses import (
    ListenerSpec,
    QuorumVoter,
    parse_host_port,
    parse_listener,
    parse_voter,
    split_list,
)
from kraft.config.keys import NUMBERS, TEXTS
from kraft.config.properties import Setting

T = TypeVar("T")

VOTERS: Final = "controller.quorum.voters"
BOOTSTRAP_SERVERS: Final = "controller.quorum.bootstrap.servers"
CONTROLLER_NAMES: Final = "controller.listener.names"
PROTOCOL_MAP: Final = "listener.security.protocol.map"
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SECRET: Final = re.compile(r"password|secret|jaas|credential|private\.?key|keystore\.key", re.IGNORECASE)
"""Keys with values that are never shown."""
_CREDENTIAL: Final = re.compile(r"password\s*=|://[^/\s:@]*:[^/\s@]+@|-----BEGIN [A-Z ]*KEY", re.IGNORECASE)
"""A credential inside of the value of another key."""


def is_secret(key: str, value: str) -> bool:
    """Whether the value of a setting must not be shown. A reference to a config provider is no secret."""
    refers = value.startswith("${") and value.endswith("}")
    return bool(value) and not refers and bool(SECRET.search(key) or _CREDENTIAL.search(value))


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of one properties file, by key. `source` is its path."""

    source: str
    values: dict[str, Setting]

    def text(self, key: str, default: str = "") -> str:
        """The value, or the default."""
        setting = self.values.get(key)
        return default if setting is None else setting.value

    def where(self, key: str) -> str:
        """The place of a setting: file, line and key; the file and the key if the setting is missing."""
        setting = self.values.get(key)
        return f"{self.source}: {key}" if setting is None else f"{setting.where}: {key}"

    def words(self, key: str) -> tuple[str, ...]:
        """The entries of a list."""
        return split_list(self.text(key))

    def number(self, key: str, default: int | None = None) -> int:
        """A whole number, or its default if the setting is missing or no number."""
        known = NUMBERS.get(key)
        otherwise = default if default is not None else known.default if known is not None else 0
        try:
            return int(self.text(key))
        except ValueError:
            return otherwise

    def flag(self, key: str, default: bool = False) -> bool:
        """Whether a setting is true."""
        return self.text(key, str(default)).lower() == "true"

    def _parsed(self, key: str, parse: Callable[[str], T]) -> tuple[T, ...]:
        values = []
        for word in self.words(key):
            try:
                values.append(parse(word))
            except ValueError:
                continue
        return tuple(values)

    @property
    def node_id(self) -> int | None:
        """`node.id`, or the older `broker.id`; None if neither is a number."""
        number = self.number("node.id", self.number("broker.id", -1))
        return None if number < 0 else number

    @property
    def roles(self) -> tuple[str, ...]:
        """`process.roles`."""
        return self.words("process.roles")

    @property
    def voters(self) -> tuple[QuorumVoter, ...]:
        """`controller.quorum.voters`, without what cannot be read; of an id the last one counts, as in Kafka."""
        return tuple({voter.id: voter for voter in self._parsed(VOTERS, parse_voter)}.values())

    @property
    def bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        """`controller.quorum.bootstrap.servers`, without entries that cannot be read."""
        return self._parsed(BOOTSTRAP_SERVERS, parse_host_port)

    @property
    def controller_names(self) -> tuple[str, ...]:
        """`controller.listener.names` in upper case."""
        return tuple(name.upper() for name in self.words(CONTROLLER_NAMES))

    @property
    def listeners(self) -> tuple[ListenerSpec, ...]:
        """`listeners`, without entries that cannot be read."""
        return self._parsed("listeners", parse_listener)

    @property
    def advertised(self) -> dict[str, ListenerSpec]:
        """The address of each listener for other nodes, by name: advertised, or else bound."""
        bound = {one.name: one for one in self.listeners}
        return bound | {one.name: one for one in self._parsed("advertised.listeners", parse_listener)}

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """`log.dirs`, or else `log.dir`, as they stand in the file; Kafka's default without both."""
        return self.words("log.dirs") or self.words("log.dir") or (TEXTS["log.dir"].default,)

    def protocols(self) -> dict[str, str]:
        """The security protocol of each listener that has one (Kafka: `effectiveListenerSecurityProtocolMap`).

        Without `listener.security.protocol.map`, a name of a protocol stands for itself, and controller listeners have
        PLAINTEXT unless a listener has one of the protected protocols.
        """
        if PROTOCOL_MAP in self.values:
            pairs = (entry.partition(":") for entry in self.words(PROTOCOL_MAP))
            return {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}
        protocols = {name: name for name in PROTOCOLS}
        names = {one.name for one in self.listeners}
        if not names & {"SSL", "SASL_PLAINTEXT", "SASL_SSL"}:
            protocols |= {name: "PLAINTEXT" for name in self.controller_names if name not in protocols}
        return protocols

    def secrets(self) -> tuple[str, ...]:
        """The keys with secret values."""
        return tuple(sorted(key for key, setting in self.values.items() if is_secret(key, setting.value)))
