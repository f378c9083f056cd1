"""What an operator would want to know next week: effects of the core, rendered as log lines.

One line per change of state or leader (Kafka: `QuorumState.transitionTo`), one for the first high watermark of an
epoch, one per suspicious peer and second. Each record carries its facts as the dict `record.facts`, for formatters that
print JSON.
"""

from __future__ import annotations

import logging
from typing import Final

from kraft.quorum.effects import Effect, HighWatermarkMoved, LeaderChanged, StateChanged, Suspicious
from metadata_log.types import NO_NODE

LOGGER: Final = logging.getLogger("kraft.node")
_QUIET_MS: Final = 1000
_PEERS_REMEMBERED: Final = 1000


class NodeLog:
    """The log of one node."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._high_watermark_wanted = True
        self._suspicions: dict[int, tuple[int, int]] = {}

    def write(self, event: str, facts: dict[str, object], level: int = logging.INFO) -> None:
        """One line: the event and its facts as `key=value`."""
        if LOGGER.isEnabledFor(level):
            facts = {"node": self._node_id, "event": event, **facts}
            text = " ".join(f"{key}={value}" for key, value in facts.items() if key != "event")
            LOGGER.log(level, "%s %s", event, text, extra={"facts": facts})

    def trace(self, effect: Effect, now_ms: int) -> None:
        """Write the line of an effect, if it has one."""
        match effect:
            case StateChanged(source=source, target=target, epoch=epoch, cause=cause):
                self.write("state", {"from": source, "to": target, "epoch": epoch, "cause": cause})
            case LeaderChanged(leader=leader):
                self._high_watermark_wanted = True
                name = "none" if leader.leader_id == NO_NODE else leader.leader_id
                self.write("leader", {"leader": name, "epoch": leader.epoch})
            case HighWatermarkMoved(offset=offset) if self._high_watermark_wanted:
                self._high_watermark_wanted = False
                self.write("high-watermark", {"offset": offset})
            case Suspicious(peer_id=peer_id, what=what):
                self._suspicious(peer_id, what, now_ms)
            case _:
                pass

    def _suspicious(self, peer_id: int, what: str, now_ms: int) -> None:
        """At most one line per peer and second, because a hostile peer decides how often this is called."""
        since_ms, held_back = self._suspicions.get(peer_id, (now_ms - _QUIET_MS, 0))
        if now_ms - since_ms < _QUIET_MS:
            self._suspicions[peer_id] = (since_ms, held_back + 1)
            return
        if len(self._suspicions) >= _PEERS_REMEMBERED:
            self._suspicions.clear()
        self._suspicions[peer_id] = (now_ms, 0)
        self.write("suspicious", {"peer": peer_id, "what": repr(what), "held_back": held_back}, logging.WARNING)
