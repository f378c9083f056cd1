"""The requests of other replicas and of administrators to the quorum, from their arrival to their answer."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from kraft.quorum.effects import SendReply, SendSnapshot
from kraft.quorum.messages import Request
from kraft.replica.interface.actions import Redirect
from kraft.replica.outbox import Outbox
from kraft.replica.rpc.rpc import Rpc
from kraft.replica.storage.snapshots import SnapshotFiles
from kraft.wire import Answer, WireRequest
from metadata_log.serde import Message
from transport.protocol.errors import Error


class QuorumRequests:
    """The requests that the core has not answered yet."""

    def __init__(self, rpc: Rpc, snapshots: SnapshotFiles, outbox: Outbox) -> None:
        self._rpc = rpc
        self._snapshots = snapshots
        self._outbox = outbox
        self.received: dict[int, WireRequest] = {}
        """The requests by id, parked fetches included."""
        self._seals: dict[int, Callable[[Message], Message]] = {}
        """By request id the function that puts the answer into the envelope of a forwarding broker."""

    def receive(self, request: WireRequest) -> Request | None:
        """The flat form of a request, which the core will answer; None if the request was refused at once."""
        flat = self._rpc.request_from_wire(request)
        if isinstance(flat, Request):
            self.received[request.request_id] = request
            return flat
        self._outbox.outputs.append(Answer(request.request_id, self._sealed(request.request_id, flat)))
        return None

    def receive_forwarded(self, redirect: Redirect) -> Request | None:
        """`receive` for a request that a broker has forwarded."""
        self._seals[redirect.request.request_id] = redirect.seal
        return self.receive(redirect.request)

    def answer(self, effect: SendReply) -> None:
        """Send the core's reply without records."""
        request = self.received.pop(effect.request_id)
        message = self._rpc.reply_to_wire(request, effect.message)
        if self._seals:
            message = self._sealed(effect.request_id, message)
        self._outbox.outputs.append(Answer(effect.request_id, message))

    def answer_with_piece(self, effect: SendSnapshot) -> None:
        """Send the core's reply with a piece of a snapshot."""
        request = self.received.pop(effect.request_id)
        size, data = self._snapshots.piece(effect.snapshot, effect.position, effect.max_bytes)
        error = Error.NONE if effect.position < size else Error.POSITION_OUT_OF_RANGE
        reply = structs.replace(effect.reply, error=error, size=size, data=data)
        self._outbox.outputs.append(Answer(effect.request_id, self._rpc.reply_to_wire(request, reply)))

    def _sealed(self, request_id: int, answer: Message) -> Message:
        """The answer as its receiver gets it: in an envelope, if a broker forwarded the request."""
        seal = self._seals.pop(request_id, None)
        return answer if seal is None else seal(answer)
