"""The requests of this process to other nodes that wait for a reply (Kafka: `InFlightRequests`)."""

from __future__ import annotations

from kraft.wire import Part, ReplyTo, Send, Target, WireSend


class InFlightRequests:
    """The asker of each reply, by the id of the request on the wire: the one place where a reply finds its way."""

    def __init__(self) -> None:
        self.last_id = 0
        self.reply_to: dict[int, ReplyTo] = {}
        """The one that gets a reply takes its address out, so that no reply counts twice."""

    def send(self, send: Send, target: Target) -> WireSend:
        """The request under an id of its own."""
        self.last_id = request_id = self.last_id + 1
        self.reply_to[request_id] = send.reply_to
        part = send.reply_to.part
        is_for_broker = part is Part.BROKER and send.target is not None
        return WireSend(request_id, target, send.message, send.timeout_ms, part, is_for_broker)
