"""One end of a conversation over any `Transport`: keeps the delivered messages, and lets a test wait for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio

from metadata_log.serde import Message
from metadata_log.serde.fields import OPEN_END
from transport.interface import PEERS, Endpoint, Gone, Inbound, Listener, Request, Transport
from transport.protocol.apis import APIS, Api, ApiKey
from transport.protocol.messages import ApiVersionsResponse, VoteRequest, VoteResponse
from transport.protocol.messages.api_versions import ApiVersion
from transport.protocol.sasl.client import SaslLogin
from transport.protocol.sasl.credentials import Users
from transport.protocol.sasl.scram import LEAST_ITERATIONS, keys_of
from transport.protocol.sasl.server import SaslListener
from transport.sasl import Sasl


def versions_of(apis: Mapping[int, Api]) -> ApiVersionsResponse:
    """The ApiVersions answer of a node that serves these, and logins."""
    logins: dict[int, Api] = {key: APIS[key] for key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)}
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.versions.lowest, max_version=api.versions.highest)
            for api in ({**logins, **apis}).values()
        ]
    )


def logins(user: str = "alice", password: str = "a-secret", mechanism: str = "SCRAM-SHA-256", **options: int) -> Sasl:
    """Logins of peers at the listener of a node, and of the node at its peers."""
    keys = keys_of("SCRAM-SHA-256", b"a-secret", b"salt", LEAST_ITERATIONS)
    users = Users(passwords={"alice": "a-secret"}, scram=lambda _, name: keys if name == "alice" else None)
    listener = SaslListener(
        mechanisms=("PLAIN", "SCRAM-SHA-256"),
        users={"PLAIN": users, "SCRAM-SHA-256": users},
        max_reauth_ms=dict.fromkeys(("PLAIN", "SCRAM-SHA-256"), options.get("max_reauth_ms", 0)),
    )
    return Sasl(
        listeners={LISTENER.name: listener},
        outgoing={PEERS: SaslLogin(mechanism=mechanism, user=user, password=password)},
        timeout_ms=options.get("timeout_ms", 10_000),
    )


class Node:
    """Answers ApiVersions by itself; other requests go to `answer_with` if it is set, else they wait in `requests`."""

    def __init__(self, transport: Transport, served: Mapping[int, Api] = APIS) -> None:
        self._versions = versions_of(served)
        self.transport: Any = transport
        self.requests: list[Request] = []
        self.outcomes: dict[int, Any] = {}
        """By token a `Reply` or a `Failed`, of which a test knows which one it expects."""
        self.gone: list[Request] = []
        self.answer_with: Callable[[Request], Message] | None = None
        self._next_token = 0
        self._news = trio.Event()
        self._in_request = False
        self.deliver: Callable[[Inbound], None] = self._deliver
        self.batch_delivered: Callable[[], bool] = self._batch_delivered

    def _deliver(self, inbound: Inbound) -> None:
        assert not self._in_request, "delivered from inside request()"
        match inbound:
            case Request() if inbound.api_key == ApiKey.API_VERSIONS:
                self.transport.answer(inbound, self._versions)
            case Request() if self.answer_with is not None:
                self.transport.answer(inbound, self.answer_with(inbound))
            case Request():
                self.requests.append(inbound)
            case Gone():
                self.gone += inbound.requests
            case _:
                assert inbound.token not in self.outcomes, f"two outcomes of {inbound.token}"
                self.outcomes[inbound.token] = inbound

    def _batch_delivered(self) -> bool:
        """Only this call wakes waiting tests, so each test shows that `batch_delivered` follows every delivery."""
        self._news.set()
        return True

    def ask(
        self,
        endpoint: Endpoint,
        message: Message | None = None,
        *,
        timeout_ms: int = 30_000,
        client_id: str = "raft-client-1",
        lane: int = 0,
        highest: int = OPEN_END,
        peers: str = PEERS,
    ) -> int:
        self._next_token += 1
        self._in_request = True
        self.transport.request(
            endpoint,
            self._next_token,
            VoteRequest(cluster_id="c") if message is None else message,
            timeout_ms=timeout_ms,
            client_id=client_id,
            lane=lane,
            highest=highest,
            peers=peers,
        )
        self._in_request = False
        return self._next_token

    async def outcome(self, token: int) -> Any:
        await self.until(lambda: token in self.outcomes)
        return self.outcomes[token]

    async def call(self, endpoint: Endpoint, message: Message | None = None, *, timeout_ms: int = 30_000) -> Any:
        return await self.outcome(self.ask(endpoint, message, timeout_ms=timeout_ms))

    async def next_request(self) -> Request:
        await self.until(lambda: bool(self.requests))
        return self.requests.pop(0)

    async def until(self, condition: Callable[..., bool]) -> None:
        with trio.fail_after(20):
            while not condition():
                self._news = trio.Event()
                await self._news.wait()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[trio.CancelScope]:
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(self.transport.run, self.deliver, batch_delivered=self.batch_delivered))
            yield nursery.cancel_scope
            nursery.cancel_scope.cancel()


def echo(request: Request) -> VoteResponse:
    """An answer that shows which request it belongs to."""
    assert isinstance(request.message, VoteRequest), request
    return VoteResponse(error_code=int(request.message.cluster_id or "0"))


def numbered(number: int) -> VoteRequest:
    return VoteRequest(cluster_id=str(number))


LISTENER = Listener("CONTROLLER", "127.0.0.1", 0)
