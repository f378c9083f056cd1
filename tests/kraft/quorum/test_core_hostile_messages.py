"""Any message with any numbers, in any order, to a core in any state: no assertion is in a remote's reach (decision
0006), and what must never happen does not.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kraft.quorum.core import CoreStart
from kraft.quorum.effects import AppendBatch, CheckDownload, PersistElection, SendRequest
from kraft.quorum.epoch_limit import LAST_EPOCH, highest_epoch
from kraft.quorum.events import (
    FailureCause,
    Received,
    Replied,
    RequestFailed,
    Resign,
    Resumed,
    SnapshotChecked,
    Tick,
)
from kraft.quorum.messages import (
    AddVoter,
    AddVoterReply,
    BatchFacts,
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    DescribeQuorum,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    ProbeVersions,
    ProbeVersionsReply,
    RemoveVoter,
    RemoveVoterReply,
    Reply,
    Request,
    UpdateVoter,
    UpdateVoterReply,
    Vote,
    VoteReply,
)
from kraft.quorum.values import ElectionState, Endpoints, ListenerAddress, QuorumConfig, ReplicaKey, VersionRange
from kraft.quorum.voters import QuorumChange, Voter, VoterSet
from metadata_log.log.epochs import EpochHistory
from metadata_log.types import OffsetAndEpoch, Uuid
from support.kraft.one_core import OneCore, at, endpoints
from transport.protocol.errors import Error

STEPS = 300
SEEDS = 80


class Hostile:
    """Draws messages: mostly numbers near those of the core, now and then absurd ones."""

    def __init__(self, one: OneCore, rng: Random) -> None:
        self.one = one
        self.rng = rng

    def _near(self, *known: int, bits: int) -> int:
        rng = self.rng
        absurd = (-1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 0, rng.randrange(2 ** (bits - 1)))
        return rng.choice(absurd) if rng.random() < 0.2 else rng.choice(known) + rng.choice((-2, -1, 0, 0, 0, 0, 1, 2))

    def epoch(self) -> int:
        return max(-(2**31), min(self._near(self.one.core.epoch, bits=32), LAST_EPOCH))

    def offset(self) -> int:
        core = self.one.core
        known = (core.log.end_offset, core.log.high_watermark, core.log.start_offset, core.log.flushed_offset)
        return max(-(2**63), min(self._near(*known, bits=64), 2**63 - 1))

    def node(self) -> int:
        return self.rng.choice((1, 1, 2, 3, 3, 3, 4, 99, -1, -2, -(2**31), 2**31 - 1))

    def key(self, node: int | None = None) -> ReplicaKey:
        node = self.node() if node is None else node
        directory = Uuid(bytes(8) + b"\x7f" + bytes(6) + bytes([node % 200]))
        return ReplicaKey(node, self.rng.choice((Uuid.ZERO, directory, directory)))

    def endpoints(self) -> Endpoints:
        count = self.rng.choice((0, 1, 1, 2))
        node = self.rng.choice((1, 3, 4))
        return Endpoints(tuple(ListenerAddress(f"CONTROLLER{at or ''}", f"n{node}", 9093) for at in range(count)))

    def versions(self) -> VersionRange:
        return VersionRange(self.rng.choice((0, 0, 1, -1, -(2**15))), self.rng.choice((0, 1, 1, 7, 2**15 - 1)))

    def voter(self) -> Voter:
        return Voter(self.key(), self.endpoints(), self.versions())

    def position(self) -> OffsetAndEpoch:
        return at(self.offset(), self.epoch())

    def changes(self, base: int) -> tuple[QuorumChange, ...]:
        rng = self.rng
        made = []
        for delta in range(rng.choice((0, 0, 0, 1, 2))):
            sets = VoterSet(tuple(Voter(self.key(node), endpoints(node)) for node in rng.sample((1, 2, 3, 4), 3)))
            made.append(QuorumChange(base + rng.choice((delta, delta, 0, 9)), rng.choice((sets, sets, 1, 0))))
        return tuple(made)

    def batches(self) -> tuple[BatchFacts, ...]:
        rng = self.rng
        base = self.one.core.log.end_offset + rng.choice((0, 0, 0, 0, -1, 1))
        made = []
        for number in range(rng.choice((0, 0, 1, 1, 2))):
            next_offset = base + rng.choice((1, 2, 3, 0, -1)) if rng.random() < 0.3 else base + 3
            made.append(BatchFacts(base, next_offset, self.epoch(), number + 1, self.changes(base)))
            base = next_offset
        return tuple(made)

    def error(self) -> Error:
        rng = self.rng
        return Error.NONE if rng.random() < 0.7 else rng.choice(list(Error))

    def request(self) -> Request:
        rng, key, epoch = self.rng, self.key(), self.epoch()
        match rng.randrange(10):
            case 0 | 1:
                last = self.position()
                return Vote(epoch=epoch, candidate=key, voter=self.key(), last=last, pre_vote=rng.random() < 0.5)
            case 2:
                return BeginQuorumEpoch(epoch=epoch, leader_id=key.id, voter=self.key(), endpoints=self.endpoints())
            case 3:
                ranked = tuple(self.key() for _ in range(rng.randrange(4)))
                return EndQuorumEpoch(epoch=epoch, leader_id=key.id, successors=ranked, endpoints=self.endpoints())
            case 4 | 5:
                return Fetch(
                    epoch=epoch,
                    replica=key,
                    offset=self.offset(),
                    last_epoch=self.epoch(),
                    max_wait_ms=rng.choice((0, 500, -1, 2**31 - 1)),
                    max_bytes=self.offset(),
                    high_watermark=self.offset(),
                )
            case 6:
                return FetchSnapshot(epoch=epoch, replica=key, snapshot=self.position(), position=self.offset())
            case 7:
                return AddVoter(self.voter(), rng.random() < 0.5)
            case 8:
                return rng.choice((RemoveVoter(key), DescribeQuorum()))
        return UpdateVoter(epoch=epoch, voter=self.voter())

    def reply(self, asked: Request) -> Reply:
        rng = self.rng
        said: dict[str, Any] = {
            "epoch": self.epoch(),
            "leader_id": self.node(),
            "endpoints": self.endpoints(),
            "error": self.error(),
        }
        match asked:
            case Vote():
                return VoteReply(**said, granted=rng.random() < 0.8)
            case BeginQuorumEpoch():
                return BeginQuorumEpochReply(**said)
            case EndQuorumEpoch():
                return EndQuorumEpochReply(**said)
            case UpdateVoter():
                return UpdateVoterReply(**said)
            case AddVoter():
                return AddVoterReply(self.error(), "no")
            case RemoveVoter():
                return RemoveVoterReply(self.error(), "no")
            case ProbeVersions():
                return ProbeVersionsReply(rng.choice((None, self.versions())), self.error())
            case FetchSnapshot(snapshot=snapshot, position=position):
                data = bytes(rng.randrange(3))
                size = rng.choice((position + len(data), position + len(data) + 5, self.offset()))
                where = rng.choice((position, position, self.offset()))
                which = rng.choice((snapshot, snapshot, self.position(), None))
                return FetchSnapshotReply(**said, snapshot=which, size=size, position=where, data=data)
        return FetchReply(
            **said,
            high_watermark=self.offset(),
            log_start_offset=self.offset(),
            diverging=self.position() if rng.random() < 0.2 else None,
            splits_batch=rng.random() < 0.2,
            snapshot=self.position() if rng.random() < 0.2 else None,
            batches=self.batches(),
            data=b"xxxx",
            damage=rng.choice((None, None, "it is damaged")),
        )

    def act(self) -> None:
        one, rng = self.one, self.rng
        effects_before = len(one.effects)
        match rng.randrange(12):
            case 0 | 1 | 2:
                one._next_id += 1
                one.step(Received(one._next_id, self.request()))
            case 3 | 4 | 5 | 6:
                for request in one.all(SendRequest)[-3:]:
                    one.step(Replied(request.request_id, request.peer_id, self.reply(request.message)))
            case 7:
                for request in one.all(SendRequest)[-2:]:
                    one.step(RequestFailed(request.request_id, request.peer_id, rng.choice(list(FailureCause))))
            case 8 | 9:
                one.now_ms += rng.choice((1, 20, 500, 2000))
                one.step(Tick())
            case 10:
                if one.core.is_leader:
                    offset = one.core.append((b"value",), one.now_ms)
                    one.step(Tick())
                    written = [effect for effect in one.effects[effects_before:] if isinstance(effect, AppendBatch)]
                    assert [effect.base_offset for effect in written] == [offset]
            case _:
                one.step(rng.choice((Resign(one.core.epoch), Resumed(50))))
        for effect in one.effects[effects_before:]:
            if isinstance(effect, CheckDownload):
                problem = rng.choice((None, None, "it is damaged"))
                changes = self.changes(effect.snapshot.offset - 1) if problem is None else ()
                if any(change.offset != effect.snapshot.offset - 1 for change in changes) or len(changes) > 1:
                    changes = ()
                one.step(SnapshotChecked(effect.snapshot, problem, changes))


def static_core(rng: Random) -> OneCore:
    return OneCore(rng=rng)


def dynamic_core(rng: Random) -> OneCore:
    def key(node: int) -> ReplicaKey:
        return ReplicaKey(node, Uuid(bytes(8) + b"\x7f" + bytes(6) + bytes([node])))

    voters = VoterSet(tuple(Voter(key(node), endpoints(node), VersionRange(0, 1)) for node in (1, 2, 3)))
    start = CoreStart(
        election=ElectionState(epoch=5, leader_id=1),
        log_start_offset=0,
        log_end_offset=100,
        epochs=EpochHistory((at(0, 3), at(60, 5))),
        snapshots=(at(0, 0),),
        changes=(QuorumChange(-1, 1), QuorumChange(-1, voters)),
    )
    config = QuorumConfig(append_linger_ms=0, auto_join=True)
    return OneCore(local=key(2), voters=VoterSet(()), start=start, config=config, rng=rng)


@pytest.mark.parametrize("make", [static_core, dynamic_core])
def test_no_message_ends_a_core(make: object) -> None:
    assert callable(make)
    states: set[str] = set()
    for seed in range(SEEDS):
        rng = Random(seed)
        one = make(rng)
        hostile = Hostile(one, rng)
        committed = -1
        for step in range(STEPS):
            try:
                hostile.act()
            except Exception as failure:
                raise AssertionError(f"seed {seed}, step {step}") from failure
            core = one.core
            states.add(core.state_name)
            assert committed <= core.log.high_watermark <= core.log.end_offset, (seed, step)
            assert core.epoch <= highest_epoch(one.now_ms), (seed, step)
            committed = core.log.high_watermark
        written = [effect.state.epoch for effect in one.all(PersistElection)]
        assert written == sorted(written)
        assert written[-1] <= LAST_EPOCH
    assert states >= {"Follower", "Prospective", "Candidate", "Leader", "Resigned", "Unattached"}
