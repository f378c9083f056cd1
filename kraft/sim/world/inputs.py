"""Turns an action into the input of a node: a request, a reply, a tick, or a request of a client.

Each function returns None if the action is not possible now, such as a reply that does not exist. A node that is not
running or is busy takes no input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from kraft.quorum.events import FailureCause
from kraft.quorum.values import LeaderAndEpoch
from kraft.sim.world.actions import (
    Administer,
    Deliver,
    Fail,
    Flushed,
    Forge,
    HangUp,
    Intrude,
    Read,
    Resign,
    Return,
    ShutDown,
    Submit,
    Tick,
)
from kraft.sim.world.driver import Exchange
from kraft.sim.world.host import Host
from kraft.sim.world.member_interface import STRANGERS, Corrupted, Output
from kraft.sim.world.simulated_quorum import DAMAGE_SHOWS_MS, SimulatedQuorum
from metadata_log.serde import decode
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest

_END_QUORUM_EPOCH: Final = "EndQuorumEpoch"
"""The kind of exchange by which a leader resigns."""


class Input(Struct, frozen=True):
    """An input for a node: a method of its member, and the arguments before the time by the node's clock."""

    host: Host
    what: str
    """The name of the input in the trace."""
    step: Callable[..., list[Output]]
    arguments: tuple[object, ...] = ()
    is_hostile: bool = False
    """Whether the input is a message of an attacker."""


# Messages between nodes


def deliver(quorum: SimulatedQuorum, action: Deliver) -> Input | None:
    """A request of another node."""
    exchange = quorum.exchanges.get((action.sender, action.number))
    if exchange is None or exchange.target != action.node:
        return None
    host = quorum.hosts[action.node]
    if not host.is_running:
        quorum.driver.on_abandoned(exchange)
        return None
    if host.held is not None:
        return None
    request_id = quorum.next_request_id()
    host.asked[request_id] = (exchange, len(exchange.answers))
    exchange.answers.append(None)
    if exchange.is_of_quorum:
        quorum.check_quorum.heard(action.node, action.sender, host.clock_ms(quorum.now_ms))
    if exchange.kind == _END_QUORUM_EPOCH:
        _note_resignation(quorum, host, exchange)
    return Input(host, f"request {action.sender}", host.member.on_request, (request_id, exchange.message))


def _note_resignation(quorum: SimulatedQuorum, host: Host, exchange: Exchange) -> None:
    wire = host.member.wire_request(exchange.message)
    assert wire is not None, exchange
    request = wire[2]
    assert isinstance(request, EndQuorumEpochRequest), request
    for told in (part for topic in request.topics for part in topic.partitions):
        quorum.signs.resigned(exchange.target, LeaderAndEpoch(told.leader_id, told.leader_epoch))


def reply(quorum: SimulatedQuorum, action: Return) -> Input | None:
    """The reply to a request of the node."""
    host = quorum.hosts[action.node]
    exchange = host.waiting.get(action.number)
    if exchange is None or action.copy >= len(exchange.answers) or host.held is not None:
        return None
    message = exchange.answers[action.copy]
    if message is None:
        return None
    del host.waiting[action.number]
    exchange.is_settled = True
    if isinstance(message, Corrupted):
        return _corrupted_reply(quorum, host, exchange, message)
    if exchange.is_of_quorum:
        quorum.signs.answered(exchange, message, host.clock_ms(quorum.now_ms))
    return Input(host, f"reply {exchange.target}", host.member.on_reply, (exchange.request_id, message))


def _corrupted_reply(quorum: SimulatedQuorum, host: Host, exchange: Exchange, reply: Corrupted) -> Input:
    """A reply that was corrupted in transit. If no decoder accepts the frame, a node closes the connection."""
    quorum.corrupted_until_ms[exchange.sender, exchange.target] = quorum.now_ms + DAMAGE_SHOWS_MS
    if reply.message is None:
        failed = exchange.request_id, FailureCause.BAD_BYTES
        return Input(host, f"bad bytes {exchange.target}", host.member.on_failed, failed)
    # The node takes the records before the damage, and may or may not count the reply as a sign of its leader.
    quorum.signs.forged(exchange.sender)
    return Input(host, f"reply {exchange.target}", host.member.on_reply, (exchange.request_id, reply.message))


def fail(quorum: SimulatedQuorum, action: Fail) -> Input | None:
    """The failure of a request of the node."""
    host = quorum.hosts[action.node]
    exchange = None if host.held is not None else host.waiting.pop(action.number, None)
    if exchange is None:
        return None
    exchange.is_settled = True
    if action.cause is FailureCause.REFUSED:
        quorum.signs.refused(host.member, exchange)
    what = f"failed {exchange.target} {action.cause}"
    return Input(host, what, host.member.on_failed, (exchange.request_id, action.cause))


# Messages of an attacker


def intrude(quorum: SimulatedQuorum, action: Intrude) -> Input | None:
    """A hostile request from outside of the quorum."""
    host = quorum.hosts[action.node]
    if not host.is_running or host.held is not None:
        return None
    quorum.is_attacked = True
    request_id = STRANGERS + quorum.next_request_id()
    if action.claims is not None:
        quorum.check_quorum.heard(action.node, action.claims, host.clock_ms(quorum.now_ms))
    arguments = request_id, action.api_key, action.version, action.body
    return Input(host, f"intruder: {action.what}", host.member.on_frame, arguments, is_hostile=True)


def forge(quorum: SimulatedQuorum, action: Forge) -> Input | None:
    """A forged reply to a request of the node."""
    host = quorum.hosts[action.node]
    exchange = host.waiting.get(action.number)
    if exchange is None or exchange.target != action.peer or exchange.kind != action.kind or host.held is not None:
        return None
    sent = host.member.wire_request(exchange.message)
    if sent is None:
        return None
    del host.waiting[action.number]
    exchange.is_settled = True
    quorum.is_attacked = True
    quorum.signs.forged(action.node)
    key, version, _ = sent
    arguments = exchange.request_id, key, version, action.body
    return Input(host, f"forged: {action.what}", host.member.on_forged_reply, arguments, is_hostile=True)


# Inputs without a message


def flushed(quorum: SimulatedQuorum, action: Flushed) -> Input | None:
    """The end of an fsync."""
    host = quorum.hosts[action.node]
    ticket = None if host.held is not None else host.flushing.pop(action.number, None)
    return None if ticket is None else Input(host, "flushed", host.member.on_flushed, (ticket,))


def tick(quorum: SimulatedQuorum, action: Tick) -> Input:
    """The time is a deadline of the node, or any other."""
    host = quorum.hosts[action.node]
    return Input(host, "tick", host.member.tick)


def submit(quorum: SimulatedQuorum, action: Submit) -> Input | None:
    """A record of a client; no id is submitted again while the first submission is pending."""
    host = quorum.hosts[action.node]
    if not host.is_running or host.held is not None or action.submit_id in quorum.submissions:
        return None
    value = action.value.encode()
    if quorum.watch is not None:
        quorum.watch.submitting(action.submit_id, action.value, quorum)
    quorum.submissions[action.submit_id] = value
    host.submitted[action.submit_id] = quorum.now_ms
    return Input(host, "submit", host.member.submit, (action.submit_id, value))


def read(quorum: SimulatedQuorum, action: Read) -> Input | None:
    """A read of a client."""
    host = quorum.hosts[action.node]
    if not host.is_running or host.held is not None:
        return None
    quorum.reads.begun(action.read_id, quorum.invariants)
    return Input(host, "read", host.member.read_index, (action.read_id,))


def administer(quorum: SimulatedQuorum, action: Administer) -> Input | None:
    """A request of a client to a controller."""
    host = quorum.hosts[action.node]
    if not host.is_running or host.held is not None:
        return None
    request = decode(ALL_APIS[action.api_key].request, action.version, action.body)
    if quorum.watch is not None:
        quorum.watch.administering(request)
    host.administered[action.request_id] = request
    return Input(
        host, f"admin {type(request).__name__}", host.member.administer, (action.request_id, request, action.version)
    )


def hang_up(quorum: SimulatedQuorum, action: HangUp) -> Input | None:
    """The end of a client's connection."""
    host = quorum.hosts[action.node]
    if not host.is_running or host.held is not None:
        return None
    return Input(host, f"hang-up of {action.peer}", host.member.hang_up, (action.peer,))


def resign(quorum: SimulatedQuorum, action: Resign) -> Input:
    """The request to a leader to resign."""
    host = quorum.hosts[action.node]
    return Input(host, "resign", host.member.resign)


def shut_down(quorum: SimulatedQuorum, action: ShutDown) -> Input:
    """The beginning of a graceful shutdown."""
    host = quorum.hosts[action.node]
    return Input(host, "shut-down", host.member.shut_down)
