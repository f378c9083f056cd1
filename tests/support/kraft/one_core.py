"""One core on its own: the test plays the other voters, with requests and answers."""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from kraft.quorum.accumulator import BatchAccumulator
from kraft.quorum.core import CoreStart, RaftCore
from kraft.quorum.effects import Effect, FlushLog, PeerFault, SendReply, SendRequest, StateChanged
from kraft.quorum.events import Event, FailureCause, LogFlushed, Received, Replied, RequestFailed, Tick
from kraft.quorum.messages import FetchReply, Reply, Request, VoteReply
from kraft.quorum.states.leader import LeaderState, Progress
from kraft.quorum.values import ElectionState, Endpoints, ListenerAddress, QuorumConfig, ReplicaKey
from kraft.quorum.voters import VoterSet
from metadata_log.log.epochs import EpochHistory
from metadata_log.types import OffsetAndEpoch

START_MS = 1_800_000_000_000
VOTERS = VoterSet.parse("1@n1:9093,2@n2:9093,3@n3:9093")
E = TypeVar("E")


def at(offset: int, epoch: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(epoch=epoch, offset=offset)


def endpoints(node: int) -> Endpoints:
    return Endpoints((ListenerAddress("CONTROLLER", f"n{node}", 9093),))


class OneCore:
    """Node 2 of three voters: by default a follower of 1 in epoch 5, with 100 records of that epoch."""

    def __init__(
        self,
        *,
        election: ElectionState | None = ElectionState(epoch=5, leader_id=1),
        log: tuple[OffsetAndEpoch, ...] = (at(0, 5),),
        end: int = 100,
        config: QuorumConfig = QuorumConfig(append_linger_ms=0),
        now_ms: int = START_MS,
        **changes: Any,
    ) -> None:
        self.now_ms = now_ms
        known: dict[str, Any] = {
            "local": ReplicaKey(2),
            "voters": VOTERS,
            "endpoints": endpoints(2),
            "start": CoreStart(election=election, log_start_offset=0, log_end_offset=end, epochs=EpochHistory(log)),
            "rng": Random(1),
        }
        self.core = RaftCore(config=config, **{**known, **changes})
        self.effects: list[Effect] = []
        """All effects of the core since its start."""
        self._next_id = 1000
        self._take(self.core.begin(now_ms))

    def _take(self, effects: list[Effect]) -> list[Effect]:
        self.effects += effects
        taken = list(effects)
        for effect in effects:
            if isinstance(effect, FlushLog):
                taken += self.step(LogFlushed(effect.offset, effect.epoch))
        return taken

    def step(self, event: Event) -> list[Effect]:
        return self._take(self.core.step(event, self.now_ms))

    def ask(self, message: Request) -> Any:
        """Ask the core; its answer, which must come at once."""
        self._next_id += 1
        effects = self.step(Received(self._next_id, message))
        (answer,) = [one.message for one in effects if isinstance(one, SendReply) and one.request_id == self._next_id]
        return answer

    def asked(self, peer: int | None = None) -> SendRequest:
        """The last request of the core, to this peer if one is named."""
        return next(one for one in reversed(self.all(SendRequest)) if peer in (None, one.peer_id))

    def answer(self, message: Reply, peer: int | None = None) -> list[Effect]:
        """Answer the last request of the core."""
        request = self.asked(peer)
        return self.step(Replied(request.request_id, request.peer_id, message))

    def fail(self, cause: FailureCause, peer: int | None = None) -> list[Effect]:
        """Let the last request of the core fail."""
        request = self.asked(peer)
        return self.step(RequestFailed(request.request_id, request.peer_id, cause))

    def elect(self, *granting: int) -> None:
        """Let the core win a pre-vote and a vote with these voters; the core must know no leader."""
        while self.core.state_name != "Prospective":
            self.advance(100)
        for _ in ("pre-vote", "vote"):
            for peer in granting:
                self.answer(VoteReply(epoch=self.core.epoch, leader_id=-1, granted=True), peer)
        assert self.core.is_leader

    def advance(self, ms: int) -> None:
        """Let time pass, deadline by deadline; what the core asks stays without an answer."""
        end = self.now_ms + ms
        while self.core.deadline_ms() <= end:
            self.now_ms = max(self.now_ms, self.core.deadline_ms())
            self.step(Tick())
        self.now_ms = end

    def all(self, kind: type[E]) -> list[E]:
        return [one for one in self.effects if isinstance(one, kind)]

    @property
    def suspicions(self) -> list[str]:
        return [one.what for one in self.all(PeerFault)]

    @property
    def campaigns(self) -> int:
        return sum(one.target == "Prospective" for one in self.all(StateChanged))


def records_of_the_leader(**changes: Any) -> FetchReply:
    """A good answer of the leader of epoch 5, without records."""
    known: dict[str, Any] = {"epoch": 5, "leader_id": 1, "endpoints": endpoints(1), "high_watermark": 100}
    return FetchReply(**{**known, **changes})


def leader_state(voters: VoterSet) -> LeaderState:
    """The state of a leader, node 1, to whom nobody has spoken yet."""
    return LeaderState(
        epoch=1,
        local=ReplicaKey(1),
        endpoints=Endpoints(),
        voters=voters,
        epoch_start_offset=0,
        accumulator=BatchAccumulator(next_offset=0, linger_ms=0, max_batch_bytes=1000),
        progress={voter.id: Progress(voter.key) for voter in voters.voters},
        observers={},
        check_quorum_deadline_ms=0,
        begin_deadline_ms=0,
    )
