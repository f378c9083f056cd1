"""The principal and the host of a request (Kafka: `KafkaPrincipal`, `RequestContext`).

ACLs name hosts in Java's notation: IPv6 groups have no leading zeros, and no group is abbreviated.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

from msgspec import Struct


class Caller(Struct, frozen=True, gc=False):
    """A principal and its host. The principal is ANONYMOUS on a listener without authentication."""

    type: str = "User"
    name: str = "ANONYMOUS"
    is_token: bool = False
    host: str = ""
    listener: str = ""
    """The name of the listener of the request, if the request did not come in an envelope."""
    client_id: str = ""

    @property
    def principal(self) -> str:
        """Type and name as one text, as in records."""
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Caller()


def host_of(address: str | bytes) -> str:
    """An address in Java's notation (`InetAddress.getHostAddress`), from a text or from 4 or 16 bytes.

    A text that is not an address is returned unchanged, because simulated nodes have names. Raises `ValueError` for
    bytes of any other length.
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        if isinstance(address, bytes):
            raise
        return address
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        groups = parsed.packed
        text = ":".join(f"{groups[at] << 8 | groups[at + 1]:x}" for at in range(0, len(groups), 2))
        return text if parsed.scope_id is None else f"{text}%{parsed.scope_id}"
    return str(parsed)


@lru_cache(maxsize=4096)
def host_of_peer(peer: str) -> str:
    """The host in `host:port`; brackets surround an IPv6 address."""
    host, colon, port = peer.rpartition(":")
    return host_of((host if colon and port.isdigit() else peer).removeprefix("[").removesuffix("]"))
