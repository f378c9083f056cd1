"""`TcpTransport`: Kafka's wire protocol over TCP, with `epoll` on Linux and with Trio's streams elsewhere."""

from __future__ import annotations

import select
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypedDict, Unpack

from transport.channels import Owner, Sockets
from transport.interface import Listener
from transport.protocol.apis import Api
from transport.protocol.limits import Limit
from transport.sasl import Sasl
from transport.tls import Tls
from transport.wire import WireTransport


class WireOptions(TypedDict, total=False):
    """The options of `WireTransport`."""

    tls: Tls | None
    sasl: Sasl
    served: Mapping[int, Api]
    limits: Callable[[int], Limit]
    requested: Mapping[int, Api]
    answer_limits: Callable[[int], Limit]
    opens_later: bool
    for_clients: Collection[str]
    max_frame_bytes: int
    largest_request_bytes: int
    max_idle_ms: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    max_received_bytes: int
    max_queued_requests: int
    max_unsent_bytes: int
    stalled_ms: int
    backoff_ms: int
    backoff_max_ms: int


class TcpTransport(WireTransport):
    """A `WireTransport` over TCP (Kafka: `SocketServer` and `NetworkClient`). See `Transport` for the contract.

    Args:
        listeners: The addresses that `run` binds.
        patience_ms: Milliseconds for which other tasks may wait while the transport polls for the next message.
            This avoids Trio's scheduling, for programs with no other work.
        use_epoll: For tests; the default is epoll on systems that have it.
        options: The options of `WireTransport`.
    """

    def __init__(
        self,
        listeners: Sequence[Listener] = (),
        *,
        patience_ms: int = 0,
        use_epoll: bool | None = None,
        **options: Unpack[WireOptions],
    ) -> None:
        def make_sockets(owner: Owner) -> Sockets:
            if hasattr(select, "epoll") if use_epoll is None else use_epoll:
                from transport.epoll import EpollSockets

                return EpollSockets(owner, patience_ms)
            from transport.streams import StreamSockets

            return StreamSockets(owner)

        super().__init__(make_sockets, listeners, **options)
