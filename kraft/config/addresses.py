"""Addresses in a configuration: listeners, voters, bootstrap lists (Kafka: `SocketServerConfigs`,
`QuorumConfig.parseVoterConnections`).
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final

from msgspec import Struct

from kraft.config.properties import trim

PROTECTED_PROTOCOLS: Final = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's security protocols other than PLAINTEXT. Each is by default that of the listener of its name."""
_LISTENER: Final = re.compile(r"([A-Za-z0-9_.\-]+)://(?:\[([0-9A-Fa-f:.%]*)\]|([^\[\]:/,]*)):(\d{1,5})")
_HOST_PORT: Final = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\[\]:/,@]+)):(\d{1,5})")
_VOTER: Final = re.compile(r"(\d{1,10})@(.+)")


class ListenerSpec(Struct, frozen=True):
    """One listener: its name, its bound or advertised address, its protocol. An empty host means every address."""

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        return f"{self.name}://{join_host_port(self.host, self.port)}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches the listener. Any name except localhost counts as reachable by others."""
        try:
            return ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"


class QuorumVoter(Struct, frozen=True):
    """One entry of `controller.quorum.voters`."""

    id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.id}@{join_host_port(self.host, self.port)}"


def join_host_port(host: str, port: int) -> str:
    """The address as text, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_list(text: str) -> tuple[str, ...]:
    """The entries of a comma-separated list, without blanks (Kafka: type LIST)."""
    return tuple(entry for part in text.split(",") if (entry := trim(part)))


def parse_host_port(text: str) -> tuple[str, int]:
    """Read `host:port` or `[ipv6]:port`; raises `ValueError`."""
    match = _HOST_PORT.fullmatch(trim(text))
    if match is None or not 0 < int(match[3]) < 65_536:
        raise ValueError(f"{text!r} is not host:port")
    return match[1] or match[2], int(match[3])


def parse_connection_limit(text: str) -> tuple[str, int]:
    """Read `host:number`, split at the last colon as in Kafka (`Csv.parseCsvMap`); raises `ValueError`."""
    host, colon, number = trim(text).rpartition(":")
    host, number = trim(host), trim(number)
    if not (colon and host and number.isascii() and number.isdigit() and len(number) <= 10):
        raise ValueError(f"{text!r} is not host:number")
    return host.strip("[]"), int(number)


def parse_listener(text: str) -> ListenerSpec:
    """Read `NAME://host:port`; raises `ValueError`. Names are upper case, as in Kafka."""
    match = _LISTENER.fullmatch(trim(text))
    if match is None or int(match[4]) > 65_535:
        raise ValueError(f"{text!r} is not NAME://host:port")
    return ListenerSpec(match[1].upper(), match[2] or match[3] or "", int(match[4]))


def parse_voter(text: str) -> QuorumVoter:
    """Read `id@host:port`; raises `ValueError`."""
    match = _VOTER.fullmatch(trim(text))
    if match is None:
        raise ValueError(f"{text!r} is not id@host:port")
    try:
        host, port = parse_host_port(match[2])
    except ValueError:
        raise ValueError(f"{text!r} is not id@host:port") from None
    return QuorumVoter(int(match[1]), host, port)
