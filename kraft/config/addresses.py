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
ANY_ADDRESS: Final = ("0.0.0.0", "::")
_ADDRESS: Final = r"(?:\[([0-9A-Za-z\-%._:]*)\]|([0-9A-Za-z\-%._:]*)):([0-9]{1,5})"
"""Kafka's characters of a host (`Utils.VALID_HOST_CHARACTERS`); an IPv6 address may stand without brackets."""
_LISTENER: Final = re.compile(rf"([A-Za-z0-9_.\-]+)://{_ADDRESS}")
_HOST_PORT: Final = re.compile(rf"(?:[0-9A-Za-z\-%._]*://)?{_ADDRESS}")
"""As in Kafka, the name of a listener may precede the address, without effect (`Utils.HOST_PORT_PATTERN`)."""
_VOTER: Final = re.compile(r"(\d{1,10})@(.+)")
_HOST: Final = re.compile(r"[0-9A-Za-z\-%._:]+")


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
    host = None if match is None else match[1] or match[2]
    if match is None or not host or not _may_be_host(host) or not 0 < int(match[3]) < 65_536:
        raise ValueError(f"{text!r} is not host:port")
    return host, int(match[3])


def parse_connection_limit(text: str) -> tuple[str, int]:
    """Read `host:number`, split at the last colon as in Kafka (`Csv.parseCsvMap`); raises `ValueError`."""
    host, colon, number = trim(text).rpartition(":")
    host, number = trim(host), trim(number)
    if not (colon and number.isascii() and number.isdigit() and len(number) <= 10):
        raise ValueError(f"{text!r} is not host:number")
    if not _HOST.fullmatch(host):
        raise ValueError(f"{host!r} is not a host; an IPv6 address has no brackets here")
    return host, int(number)


def parse_listener(text: str) -> ListenerSpec:
    """Read `NAME://host:port`; raises `ValueError`. Names are upper case, as in Kafka."""
    match = _LISTENER.fullmatch(trim(text))
    if match is None or int(match[4]) > 65_535 or not _may_be_host(match[2] or match[3] or ""):
        raise ValueError(f"{text!r} is not NAME://host:port")
    return ListenerSpec(match[1].upper(), match[2] or match[3] or "", int(match[4]))


def share_a_port(one: ListenerSpec, other: ListenerSpec) -> bool:
    """Whether two listeners may have the same port: one has an IPv4 address, the other an IPv6 address."""
    versions = set()
    for host in (one.host, other.host):
        try:
            versions.add(ip_address(host.partition("%")[0]).version)
        except ValueError:
            return False
    return versions == {4, 6}


def _may_be_host(host: str) -> bool:
    """Whether a text is no IPv6 address without its last part, such as the `::` of `::1`."""
    if ":" not in host:
        return True
    try:
        return ip_address(host.partition("%")[0]).version == 6
    except ValueError:
        return False


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
