"""Host names and addresses: binding listeners, resolving peers, the system's errors (Kafka: `ClientUtils`)."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from typing import Any, Final

import trio

from transport.interface import Cause, Endpoint, Listener

SocketAddress = tuple[Any, ...]
"""The argument of `socket.connect`: host and port; IPv6 adds two numbers."""
Address = tuple[int, SocketAddress]
"""An address with its family."""

BACKLOG: Final = 512
"""The listen backlog: connections that the system completes before the node accepts them. Kafka's 50 is small for a
burst of clients.
"""

ADDRESS_SECONDS: Final = 0.5
"""How long to wait for one address of a name while other addresses are left."""

PEER_CLOSED: Final = "the peer closed the connection"
NO_ADDRESS: Final = "the host has no address"
SILENT_ADDRESS: Final = "no address answers in time"

_REFUSED: Final = frozenset({errno.ECONNREFUSED})
_NO_SUCH_NAME: Final = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
_RESET: Final = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED, errno.ENOTCONN, errno.ESHUTDOWN})
_GONE: Final = _RESET | {errno.EINVAL}
"""The errors with which systems answer a program that sets an option of a connection that has ended."""


_CURES: Final = {
    errno.EADDRINUSE: "Another process listens there: stop it, or choose another port.",
    errno.EADDRNOTAVAIL: "The host is no address of this machine: give one that is, or 0.0.0.0 for all of them.",
}


class UnknownHost(OSError):
    """The name of a host does not exist."""


def bind(listener: Listener, *, opens_later: bool = False) -> socket.socket:
    """Bind a non-blocking listening socket; with `opens_later` the system refuses connections until `open_socket`.

    An empty host means every address of both families. A name with several addresses takes the first, IPv4 before IPv6.

    Raises:
        OSError: The address is unknown or in use; the text names the address.
    """
    wanted = Endpoint(listener.host, listener.port)
    try:
        family, address = _bind_address(listener)
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setblocking(False)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if listener.host else 0)
            bound.bind(address)
            if not opens_later:
                open_socket(bound)
        except BaseException:
            bound.close()
            raise
    except (OSError, ValueError, OverflowError) as failed:
        number = failed.errno if isinstance(failed, OSError) else errno.EINVAL
        refused = OSError(number, f"cannot listen on {wanted}: {reason_of(failed)}")
        if number in _CURES:
            refused.add_note(f"hint: {_CURES[number]}")
        raise refused from None
    return bound


def open_socket(bound: socket.socket) -> None:
    """Let the system accept connections at a bound socket."""
    bound.listen(BACKLOG)


def _bind_address(listener: Listener) -> Address:
    if not listener.host and socket.has_dualstack_ipv6():
        return socket.AF_INET6, ("::", listener.port)
    if not listener.host:
        return socket.AF_INET, ("", listener.port)
    answers = socket.getaddrinfo(listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return _in_order(answers)[0]


def bound_to(listener: Listener, bound: socket.socket) -> Endpoint:
    """The address of a bound listener: its own host, with the port that the operating system chose."""
    host, port = bound.getsockname()[:2]
    return Endpoint(listener.host or host, port)


def numeric(endpoint: Endpoint) -> list[Address]:
    """The address of a numeric host; empty for a name, which needs resolving, and for text that is no address."""
    if not 0 < endpoint.port < 1 << 16:
        return []
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, endpoint.host)
        except (OSError, ValueError):
            continue
        return [(family, (endpoint.host, endpoint.port))]
    return []


async def resolve(endpoint: Endpoint, failures: int) -> list[Address]:
    """Every address of a named host. The lookup runs in a thread, so that no task blocks.

    Each failed attempt to connect rotates the list by one (Kafka: `ClusterConnectionStates.moveToNextAddress`), because
    a silent first address can use up the whole timeout. Endpoints come from other nodes, so an impossible port or name
    is an `OSError` too.

    Raises:
        OSError: The name has no address, or the port is out of range.
    """
    if not 0 < endpoint.port < 1 << 16:
        raise OSError(errno.EINVAL, f"there is no port {endpoint.port}")
    try:
        answers = await trio.to_thread.run_sync(
            lambda: socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM), abandon_on_cancel=True
        )
    except (OSError, ValueError) as failed:
        is_unknown = isinstance(failed, ValueError) or failed.errno in _NO_SUCH_NAME
        kind = UnknownHost if is_unknown else OSError
        raise kind(errno.EHOSTUNREACH, f"the host name cannot be resolved: {reason_of(failed)}") from None
    addresses = _in_order(answers)
    first = failures % len(addresses)
    return addresses[first:] + addresses[:first]


async def addresses_of(host: str) -> list[str]:
    """The numeric addresses of a host, without ports; empty if the name does not resolve."""
    endpoint = Endpoint(host, 1)
    try:
        return [str(address[0]) for _, address in numeric(endpoint) or await resolve(endpoint, 0)]
    except OSError:
        return []


async def name_of_this_machine() -> str:
    """The canonical host name of this machine (Java: `InetAddress.getLocalHost().getCanonicalHostName()`)."""
    return await trio.to_thread.run_sync(socket.getfqdn, abandon_on_cancel=True)


def _in_order(
    found: Sequence[tuple[socket.AddressFamily, socket.SocketKind, int, str, SocketAddress]],
) -> list[Address]:
    return sorted(((int(family), address) for family, _, _, _, address in found), key=_ipv6_last)


def _ipv6_last(address: Address) -> bool:
    return address[0] == socket.AF_INET6


def text_of(address: SocketAddress) -> str:
    """A socket's address as `host:port`."""
    return str(Endpoint(str(address[0]), int(address[1])))


def reason_of(failed: Exception) -> str:
    """The text of a failure, without its error number."""
    return (isinstance(failed, OSError) and failed.strerror) or str(failed)


def cause_of(failed: OSError) -> Cause:
    """The `Cause` for a failure that the operating system reports."""
    if failed.errno in _REFUSED:
        return Cause.REFUSED
    if failed.errno in _RESET:
        return Cause.RESET
    if isinstance(failed, UnknownHost):
        return Cause.UNKNOWN_HOST
    return Cause.TIMEOUT


def clearer(one: tuple[Cause, str] | None, other: tuple[Cause, str]) -> tuple[Cause, str]:
    """The more specific of two failures: an answer of the peer's host before a timeout, else the later one."""
    return one if one is not None and one[0] is Cause.REFUSED else other


def set_options(connected: socket.socket | trio.socket.SocketType) -> None:
    """Send small frames without delay, and let the system notice a silent host.

    Kafka: `Selector.configureSocketChannel`. macOS refuses the options of a connection that the peer has closed
    already; whoever reads from it next sees its end.
    """
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    except OSError as refused:
        if refused.errno not in _GONE:
            raise


def refuse_itself(here: SocketAddress, there: SocketAddress) -> None:
    """Raise if a loopback connection connected to itself, which a free port of the ephemeral range allows."""
    if here == there:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "no listener at this address")
