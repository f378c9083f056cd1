"""A sender of frames that no correct peer sends: requests in the name of a stranger or a peer, and forged responses.

The attacker knows the state of every node, so that its frames can be close to correct ones.
"""

from __future__ import annotations

from random import Random

from kraft.sim.faults.hostile import AttackTarget, absurd_answer, absurd_request, forged_answer, forged_request
from kraft.sim.world.actions import Forge, Intrude
from kraft.sim.world.driver import Exchange
from kraft.sim.world.world import World
from metadata_log.errors import EncodeError
from metadata_log.serde import Message, encode
from transport.protocol.apis import APIS


class Attacker:
    """Draws hostile messages for the nodes of a world."""

    def __init__(self, rng: Random, world: World) -> None:
        self._rng = rng
        self._world = world
        self._awaited: dict[int, int] = {}
        """By node the number of its next requests that the attacker will answer."""

    @property
    def is_lying_in_wait(self) -> bool:
        """Whether the attacker will answer any request."""
        return bool(self._awaited)

    def lie_in_wait(self, node_id: int, answers: int) -> None:
        """Answer this number of a node's next requests."""
        if answers:
            self._awaited[node_id] = answers

    def request(self, node_id: int, now_ms: int, *, is_forging: bool) -> Intrude | None:
        """A hostile request to a node; None if the node is not running."""
        target = self._target(node_id)
        if target is None:
            return None
        hostile = (forged_request if is_forging else absurd_request)(self._rng, target)
        key = type(hostile.message).__schema__.api_key
        assert key is not None, hostile
        versions = APIS[key].versions
        version = versions.highest if self._rng.random() < 0.7 else self._rng.randint(versions.lowest, versions.highest)
        body = _encoded(hostile.message, version)
        if body is None:
            return None
        return Intrude(now_ms, node_id, int(key), version, body, hostile.what, hostile.claims)

    def answer(self, exchange: Exchange, now_ms: int, *, is_forging: bool) -> Forge | None:
        """A hostile response in place of the target's; None if the attacker does not answer this request."""
        node_id = exchange.sender
        left, target = self._awaited.get(node_id, 0), self._target(node_id)
        if not left or target is None or exchange.is_settled:
            return None
        sent = self._world.hosts[node_id].member.wire_request(exchange.message)
        if sent is None:
            return None
        key, version, request = sent
        hostile = (forged_answer if is_forging else absurd_answer)(self._rng, target, key, request)
        if hostile is None:
            return None
        body = _encoded(hostile.message, version)
        if body is None:
            return None
        if left == 1:
            del self._awaited[node_id]
        else:
            self._awaited[node_id] = left - 1
        return Forge(now_ms, node_id, exchange.target, exchange.number, exchange.kind, body, hostile.what)

    def _target(self, node_id: int) -> AttackTarget | None:
        host = self._world.hosts[node_id]
        if not host.is_running:
            return None
        member = host.member
        return AttackTarget(member.key, member.view(), member.voters(), self._world.node_ids)


def _encoded(message: Message, version: int) -> bytes | None:
    """The body in wire format; None if this version cannot express the message."""
    try:
        return encode(message, version)
    except EncodeError:
        return None
