"""`TcpTransport`: Kafka's wire over TCP, on `epoll` where there is one and on Trio's streams elsewhere."""

from __future__ import annotations

import select
from collections.abc import Mapping, Sequence
from typing import TypedDict, Unpack

from transport.channels import Owner, Sockets
from transport.interface import Listener
from transport.protocol.apis import Api
from transport.wire import WireTransport


class WireOptions(TypedDict, total=False):
    """Those of `WireTransport`."""

    served: Mapping[int, Api]
    max_frame_bytes: int
    max_idle_ms: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    max_received_bytes: int
    max_unsent_bytes: int
    stalled_ms: int
    backoff_ms: int
    backoff_max_ms: int


class TcpTransport(WireTransport):
    """A `WireTransport` over TCP.

    `patience_ms` is how long other tasks may be kept waiting for the next message after one was dealt with, where
    Trio's scheduling would cost more than they gain: for programs that do nothing else. `use_epoll` is for tests: epoll
    where it exists.
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
