"""One transport connects to two kinds of peers, each with a security protocol of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ssl import PROTOCOL_TLS_CLIENT, SSLContext

import pytest

from conversation import LISTENER, Node, echo, logins, numbered
from support.interop.certificates import another_authority, client_context, server_context
from transport.interface import PEERS, Cause, Endpoint, Failed, Reply
from transport.memory_sockets import MemoryStreams
from transport.protocol.inbound import ANONYMOUS, Principal
from transport.sasl import Sasl
from transport.tls import Tls, TlsListener
from transport.wire import WireTransport

BROKERS = "brokers"


@asynccontextmanager
async def nodes() -> AsyncIterator[tuple[WireTransport, Node, list[tuple[Node, Endpoint]]]]:
    """A client; a peer in the clear, and one with TLS and logins, with their addresses."""
    network, login = MemoryStreams(), logins()
    listener = TlsListener(server_context())
    carrier = network.transport(
        tls=Tls(outgoing={PEERS: None, BROKERS: client_context()}),
        sasl=Sasl(outgoing={PEERS: None, BROKERS: login.outgoing[PEERS]}),
    )
    peers = [
        Node(network.transport()),
        Node(network.transport(tls=Tls(listeners={LISTENER.name: listener}), sasl=Sasl(listeners=login.listeners))),
    ]
    client = Node(carrier)
    endpoints = [peer.transport.listen(LISTENER) for peer in peers]
    async with client.running(), peers[0].running(), peers[1].running():
        yield carrier, client, list(zip(peers, endpoints, strict=True))


async def test_each_kind_of_peers_has_its_security_protocol(autojump_clock: object) -> None:
    async with nodes() as (_, client, [(plain, at_plain), (secured, at_secured)]):
        tokens = [
            client.ask(at_plain, numbered(1), peers=PEERS),
            client.ask(at_secured, numbered(2), peers=BROKERS),
        ]
        requests = [await plain.next_request(), await secured.next_request()]
        assert [one.principal for one in requests] == [ANONYMOUS, Principal(name="alice")]
        for peer, request in zip((plain, secured), requests, strict=True):
            peer.transport.answer(request, echo(request))
        assert all([isinstance(await client.outcome(token), Reply) for token in tokens])


async def test_an_address_of_another_kind_is_reached_by_the_protocol_of_the_kind(autojump_clock: object) -> None:
    """A broker may register any address: nothing goes out in the clear for that, and no connection is shared."""
    async with nodes() as (_, client, [(plain, at_plain), (secured, at_secured)]):
        plain.answer_with = echo
        lost = await client.outcome(client.ask(at_plain, numbered(1), peers=BROKERS, timeout_ms=2_000))
        assert isinstance(lost, Failed)
        assert not plain.requests
        found = await client.outcome(client.ask(at_plain, numbered(2), peers=PEERS))
        assert isinstance(found, Reply)
        lost = await client.outcome(client.ask(at_secured, numbered(3), peers=PEERS, timeout_ms=2_000))
        assert isinstance(lost, Failed)
        assert not secured.requests


async def test_a_kind_that_is_not_named_has_the_protocol_of_the_others(autojump_clock: object) -> None:
    async with nodes() as (_, client, [(plain, at_plain), _]):
        plain.answer_with = echo
        assert isinstance(await client.outcome(client.ask(at_plain, numbered(1), peers="observers")), Reply)


async def test_the_contexts_of_each_kind_are_replaced_and_no_kind_gains_or_loses_tls(autojump_clock: object) -> None:
    async with nodes() as (carrier, client, [_, (secured, at_secured)]):
        secured.answer_with = echo
        assert isinstance(await client.outcome(client.ask(at_secured, numbered(1), peers=BROKERS)), Reply)
        one = client_context()
        for wrong in ({PEERS: one, BROKERS: one}, {PEERS: None, BROKERS: None}, {PEERS: None}):
            with pytest.raises(ValueError, match="neither added nor removed"):
                carrier.replace_tls(Tls(outgoing=wrong))
        foreign = SSLContext(PROTOCOL_TLS_CLIENT)
        another_authority().configure_trust(foreign)
        carrier.replace_tls(Tls(outgoing={PEERS: None, BROKERS: foreign}))
        carrier.close_peer(at_secured)
        lost = await client.outcome(client.ask(at_secured, numbered(2), peers=BROKERS))
        assert isinstance(lost, Failed)
        assert lost.cause is Cause.AUTHENTICATION
