"""Renders the effects of the core as log lines for operators.

One line per change of state or leader (Kafka: `QuorumState.transitionTo`), one for the first high watermark of an
epoch, at most one warning of a kind per second; denied requests are among these (Kafka:
`kafka.authorizer.logger`). Each record carries its facts as the dict `record.facts`, for formatters that print JSON.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from kraft.access.authorizer import Denial
from kraft.access.older_node import OlderNode
from kraft.quorum.effects import Effect, HighWatermarkMoved, LeaderChanged, PeerFault, StateChanged
from metadata_log.printable import printable
from metadata_log.types import NO_NODE

LOGGER: Final = logging.getLogger("kraft.node")
_QUIET_MS: Final = 1000
_LONGEST_NAME: Final = 249
"""A client may name a resource of 32 KB; no topic has a longer name than this."""


class NodeLog:
    """The log of one node. An embedded one shares its process, and its log, with a program that has other worries."""

    def __init__(self, node_id: int, now_ms: Callable[[], int], *, is_embedded: bool = False) -> None:
        self._is_embedded = is_embedded
        self._node_id = node_id
        self._now_ms = now_ms
        self._high_watermark_wanted = True
        self._warned: dict[tuple[str, str], tuple[int, int]] = {}

    def write(self, event: str, facts: dict[str, object], level: int = logging.INFO) -> None:
        """Write one line: the event and its facts as `key=value`. Unprintable characters of peers are escaped."""
        if LOGGER.isEnabledFor(level):
            facts = {"node": self._node_id, "event": event, **facts}
            text = " ".join(f"{key}={printable(str(value))}" for key, value in facts.items() if key != "event")
            LOGGER.log(level, "%s %s", event, text, extra={"facts": facts})

    def trace(self, effect: Effect | Denial | OlderNode) -> None:
        """Write the line of an effect, if it has one."""
        match effect:
            case HighWatermarkMoved(offset=offset):
                if self._high_watermark_wanted:
                    self._high_watermark_wanted = False
                    self.write("high-watermark", {"offset": offset})
            case StateChanged(source=source, target=target, epoch=epoch, cause=cause):
                self.write("state", {"from": source, "to": target, "epoch": epoch, "cause": cause})
            case LeaderChanged(leader=leader):
                self._high_watermark_wanted = True
                name = "none" if leader.leader_id == NO_NODE else leader.leader_id
                self.write("leader", {"leader": name, "epoch": leader.epoch})
            case PeerFault(peer_id=peer_id, what=what):
                self.warn("suspicious", {"peer": peer_id, "what": repr(what)})
            case Denial(caller=caller):
                facts: dict[str, object] = {
                    "principal": repr(caller.principal),
                    "host": caller.host,
                    "operation": effect.operation.name,
                    "resource": repr(f"{effect.resource.name}:{effect.name[:_LONGEST_NAME]}"),
                    "rule": repr(effect.rule),
                }
                self.warn("denied", facts, kind=effect.operation.name)
            case OlderNode(node=node, lacks=lacks, remedy=remedy):
                self.warn("older-node", {"who": repr(node), "lacks": repr(lacks), "remedy": repr(remedy)})
            case _:
                pass

    def long_turn(self, facts: dict[str, object]) -> None:
        """Tell of a turn that was too long. A busy machine makes such turns, too: to a program that embeds a node this
        is a warning only where its own state machine took the time.
        """
        is_warning = not self._is_embedded or "of_which" in facts
        self.warn("long-turn", facts, level=logging.WARNING if is_warning else logging.INFO)

    def warn(self, event: str, facts: dict[str, object], *, kind: str = "", level: int = logging.WARNING) -> None:
        """Write a warning, at most one per event, kind and second: a hostile peer may decide how often this is called.

        `event` and `kind` are constants of the program: an id or a name that a peer chooses gets no line of its own.
        """
        now_ms, key = self._now_ms(), (event, kind)
        since_ms, held_back = self._warned.get(key, (now_ms - _QUIET_MS, 0))
        if now_ms - since_ms < _QUIET_MS:
            self._warned[key] = (since_ms, held_back + 1)
            return
        self._warned[key] = (now_ms, 0)
        self.write(event, {**facts, "held_back": held_back}, level)
