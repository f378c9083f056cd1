"""Real cores that follow a behaviour of `docs/protocol/Quorum.tla`: each step of the module becomes the event that
leads a core to it, in the notation of the transcripts, and the state after is compared.

A core does some steps in one turn, as a new leader writes its first record at once. Then the next steps of this replica
must be those.
"""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.quorum.states import LeaderState
from support.behaviours import ModuleState, Step, node_of
from support.transcripts.quorum import QuorumPlayer

NODES: Final = (1, 2, 3)
_ROLES: Final = {"Voted": "Unattached"}
_TURN: Final = 4
"""The most steps of the module that are one turn of a core."""

_MESSAGES: Final = ("Fetch", "GrantPreVote")
"""The steps that only send a message, which the behaviour may do without."""

ONE_TURN: Final = "a new leader writes its first record, and a resigned one is nominated, in the same turn"
STICKY: Final = "a follower that has heard its leader refuses pre-votes"
LATE: Final = "an answer to an earlier round of requests for votes does not count"
KNOWN: Final = "a nominee that knows the leader of its epoch is not brought back by hearing of it"
IDLE: Final = "nominees, candidates and resigned leaders fetch nothing"
ASKS_LATER: Final = "a follower asks for more when the last records are on disk"
WHOLE: Final = "a leader commits all that it knows to be on a majority"
UNSAID: Final = "it needs a message that was not sent, for one of these reasons"
REASONS: Final = (ONE_TURN, STICKY, LATE, KNOWN, IDLE, ASKS_LATER, WHOLE, UNSAID)
"""Why a core never takes a step that the module allows; `QuorumWalk.tla` has the same as formulas."""


class View(Struct, frozen=True):
    """The state of a replica, as the module and the core tell it."""

    role: str
    epoch: int
    leader: int
    vote: int
    log: tuple[int, ...]
    """The epoch of each record."""
    flushed: int
    watermark: int


class Line(Struct):
    """A command with its effects, and the step for which it was given."""

    step: str
    command: str
    effects: list[str]


class Played(Struct):
    """How far the cores have followed a behaviour."""

    lines: list[Line]
    taken: list[str] = []
    """The actions that were taken."""
    unsaid: list[str] = []
    """Why some messages were not sent, which alone ends no behaviour."""
    refused: str = ""
    """Why the next step was not taken; empty for a whole behaviour."""


class UnknownRefusal(AssertionError):
    """A core has not taken a step, and nobody has said why it never does."""


def play(states: list[ModuleState]) -> Played:
    """Lead three cores through a behaviour, to its end or to the first step that a core never takes."""
    follower = _Follower(states)
    for at in range(1, len(states)):
        if states[at].step.what == "Wait":
            continue
        refused = follower.follow(at)
        if not refused:
            follower.played.taken.append(states[at].step.what)
        elif states[at].step.what in _MESSAGES:
            follower.played.unsaid.append(refused)
        else:
            follower.played.refused = refused
            break
    return follower.played


def of_module(state: ModuleState, node: int) -> View:
    """A replica of the module."""
    name = f"n{node}"
    log = tuple(record["epoch"] for record in state["log"][name])
    leader, vote = node_of(state["leader"][name]), node_of(state["vote"][name])
    watermark: int = state["hw"][name]
    return View(state["role"][name], state["epoch"][name], leader, vote, log, state["flushed"][name], watermark)


class _Follower:
    """Gives the cores the events of a behaviour."""

    def __init__(self, states: list[ModuleState]) -> None:
        self.states = states
        self.played = Played([])
        self._player = QuorumPlayer()
        self._ahead: dict[int, list[int]] = {node: [] for node in NODES}
        """The steps that each core has taken already, by their places in the behaviour."""
        self._sent: dict[int, set[str]] = {node: set() for node in NODES}
        self._unsaid: set[tuple[object, ...]] = set()
        """The fetches and pre-votes of the module that no core has sent."""
        self._name = "Init"
        self._do("flush by-hand")
        for node in NODES:
            self._do(f"start {node}")

    def follow(self, at: int) -> str:
        """Take a step; returns why no core ever takes it, or nothing."""
        before, after = self.states[at - 1], self.states[at]
        step = after.step
        ahead = self._ahead[step.who]
        if ahead:
            assert ahead.pop(0) == at, step
            return ""
        self._name = _shown(step)
        fact = _fact(before, step)
        reason = self._reason(before, step)
        if reason:
            if step.what in _MESSAGES:
                self._unsaid.add(fact)
            return reason
        self._unsaid.discard(fact)
        is_done = self._act(before, step)
        core = self.view(step.who)
        if is_done and core == of_module(after, step.who):
            return ""
        own = [later for later in range(at + 1, len(self.states)) if self.states[later].step.who == step.who]
        for count in range(1, _TURN if is_done else 0):
            if len(own) >= count and core == of_module(self.states[own[count - 1]], step.who):
                self._ahead[step.who] = own[:count]
                return ""
        if step.what in ("Win", "Leave"):
            return ONE_TURN if own else ""  # The behaviour ends within the turn.
        wanted = of_module(after, step.who)
        if step.what in ("Commit", "Flush") and core.watermark > wanted.watermark:
            # What an fsync completes is committed in its turn, if the leader knows of it.
            is_next = (
                own and self.states[own[0]].step.what == "Commit" and core.watermark <= self.states[own[0]].step.end
            )
            return "" if is_next and replace(core, watermark=wanted.watermark) == wanted else WHOLE
        told = f"{self._name}\nthe core:   {core}\nthe module: {of_module(after, step.who)}"
        raise UnknownRefusal(f"{told}\nbefore:     {of_module(before, step.who)}\n{self._told()}")

    def view(self, node: int) -> View:
        """A replica as its core knows it."""
        member = self._player.member(node)
        core = member.core
        voted = core.state.voted
        return View(
            _ROLES.get(core.state_name, core.state_name),
            core.epoch,
            max(core.state.leader_id, 0),
            0 if voted is None else voted.id,
            tuple(batch.epoch for batch in member.log.batches for _ in range(batch.base_offset, batch.next_offset)),
            core.log.flushed_offset,
            max(core.log.high_watermark, 0),
        )

    def _told(self) -> str:
        return "\n".join(f"> {one.command}\n" + "\n".join(one.effects) for one in self.played.lines[-12:])

    def _do(self, command: str) -> list[str]:
        name, *words = command.split()
        effects = self._player.act(name, tuple(words))
        self.played.lines.append(Line(self._name, command, effects))
        wrong = [line for line in effects if " suspects " in line]
        if wrong:
            raise UnknownRefusal(f"{self._name}: {wrong}\n{self._told()}")
        for line in effects:
            sent = re.match(r"(\d) -> \d (Vote|Fetch) (epoch=\d+(?: pre)? (?:last|at)=\S+)", line)
            if sent:
                self._sent[int(sent[1])].add(f"{sent[2]} {sent[3]}")
        return effects

    def _reason(self, before: ModuleState, step: Step) -> str:
        """Why no core takes this step in this state: what each does only in another order, or not at all."""
        name = f"n{step.who}"
        mine = of_module(before, step.who)
        match step.what:
            case "GrantPreVote" if mine.role == "Follower" and before["heard"][name]:
                return STICKY
            case "Stand" | "Win" if not before["fresh"][name]:
                return LATE
            case "Stand" if not self._granting(before, step.who):
                return UNSAID
            case "Commit" if not self._is_on_majority(before, step, mine):
                return UNSAID
            case "LearnLeader" if step.end == mine.epoch and mine.leader:
                return KNOWN
            case "Fetch" if mine.role not in ("Follower", "Unattached"):
                return IDLE
            case "Take" | "Hear" | "Truncate" if mine.flushed < len(mine.log):
                return ASKS_LATER
        return ""

    def _act(self, before: ModuleState, step: Step) -> bool:
        """Give the core the event of a step; returns whether it did what can be seen of it elsewhere."""
        node = step.who
        mine = of_module(before, node)
        others = [one for one in NODES if one != node]
        match step.what:
            case "Nominate" | "Leave":
                self._do(f"timeout {node}")
            case "Ask":
                return self._ask(node, mine, others)
            case "GrantPreVote" | "GrantVote":
                return self._grant(before, step)
            case "Stand" | "Win":
                voters = self._granting(before, node) if step.what == "Stand" else before["fresh"][f"n{node}"]
                self._do(f"answer {node} {node_of(min(voters))} VoteReply epoch={mine.epoch} granted")
            case "GiveUp":
                for peer in others:
                    self._do(f"answer {node} {peer} VoteReply epoch={mine.epoch}")
            case "LearnEpoch":
                self._do(f"receive {node} Vote from={step.to} epoch={step.end} pre last=0@0")
            case "LearnLeader":
                self._do(f"receive {node} BeginQuorumEpoch from={step.to} epoch={step.end}")
            case "Resign":
                self._do(f"resign {node}")
            case "AppendData":
                self._do(f"append {node} x")
            case "Flush":
                self._do(f"flush {node}")
            case "Fetch":
                at = f"{len(mine.log)}@{mine.log[-1] if mine.log else 0}"
                return f"Fetch epoch={mine.epoch} at={at}" in self._sent[node]
            case "Take" | "Hear" | "Truncate":
                self._answer_fetch(before, step, mine)
            case "Commit":
                self._commit(before, step)
            case "Restart":
                self._restart(node, mine.log[: step.end])
            case _:
                raise UnknownRefusal(f"no event for {step}")
        return True

    def _granting(self, before: ModuleState, node: int) -> list[str]:
        """Whose pre-votes a nominee has, without those that no core has given."""
        epoch = before["epoch"][f"n{node}"]
        voters = before["fresh"][f"n{node}"]
        return [one for one in voters if ("GrantPreVote", one, epoch, node) not in self._unsaid]

    def _ask(self, node: int, mine: View, others: list[int]) -> bool:
        pre = " pre" if mine.role == "Prospective" else ""
        last = f"{mine.flushed}@{mine.log[mine.flushed - 1] if mine.flushed else 0}"
        asked = f"Vote epoch={mine.epoch}{pre} last={last}"
        if asked not in self._sent[node]:
            # More is on disk than when it has asked, and it asks again after a request that was lost.
            for peer in others:
                self._do(f"fail {node} {peer} timeout")
            self._do(f"wait {node} 20")
        return asked in self._sent[node]

    def _grant(self, before: ModuleState, step: Step) -> bool:
        is_pre, epoch = step.what == "GrantPreVote", before["epoch"][f"n{step.who}"]
        ballot = next(
            one
            for one in before["ballots"]
            if (one["pre"], one["epoch"]) == (is_pre, epoch)
            and (one["candidate"], one["last"]["end"]) == (f"n{step.to}", step.end)
        )
        pre, last = " pre" if is_pre else "", ballot["last"]
        asked = f"from={step.to} epoch={epoch}{pre} last={last['end']}@{last['epoch']}"
        return any(" granted" in line for line in self._do(f"receive {step.who} Vote {asked}"))

    def _answer_fetch(self, before: ModuleState, step: Step, mine: View) -> None:
        known = before.ledger(mine.epoch)
        assert known is not None, step
        theirs = tuple(record["epoch"] for record in known["log"])
        reply = f"answer {step.who} {mine.leader} FetchReply epoch={mine.epoch} leader={mine.leader}"
        if step.what == "Take":
            self._do(f"{reply} log={_log(theirs[: step.end])} after={len(mine.log)}")
        elif step.what == "Hear":
            self._do(f"{reply} hw={step.end}")
        else:
            end = sum(epoch <= (mine.log[-1] if mine.log else 0) for epoch in theirs)
            self._do(f"{reply} diverging={end}@{theirs[end - 1] if end else 0}")

    def _commit(self, before: ModuleState, step: Step) -> None:
        """The leader hears the fetches that make a majority: of each follower the one that is just far enough."""
        leader = self._player.member(step.who).core.state
        assert isinstance(leader, LeaderState), leader
        for node in NODES:
            if node == step.who or leader.progress[node].end_offset >= step.end:
                continue
            if leader.high_watermark >= step.end:
                return
            fetches = self._fetches(before, step, node)
            if fetches:
                last = min(fetches, key=lambda one: int(one["end"]))
                at = f"{last['end']}@{last['epoch']}"
                epoch = before["epoch"][f"n{step.who}"]
                self._do(f"receive {step.who} Fetch from={node} epoch={epoch} at={at} wait=0")

    def _is_on_majority(self, before: ModuleState, step: Step, mine: View) -> bool:
        """Whether a majority has the records of a commit on disk, and has said so."""
        others = sum(bool(self._fetches(before, step, node)) for node in NODES if node != step.who)
        return 2 * (others + (mine.flushed >= step.end)) > len(NODES)

    def _fetches(self, before: ModuleState, step: Step, node: int) -> list[dict[str, Any]]:
        """The ends of the fetches, which a core has sent, of a follower that has the records of a commit."""
        epoch = before["epoch"][f"n{step.who}"]
        return [
            one["last"]
            for one in before["fetches"]
            if (one["replica"], one["epoch"]) == (f"n{node}", epoch)
            and one["last"]["end"] >= step.end
            and self._is_valid(step.who, one["last"])
            and ("Fetch", f"n{node}", epoch, one["last"]["end"], one["last"]["epoch"]) not in self._unsaid
        ]

    def _is_valid(self, node: int, last: dict[str, Any]) -> bool:
        log = self.view(node).log
        end = sum(epoch <= last["epoch"] for epoch in log)
        return bool(end >= last["end"] and (log[end - 1] if end else 0) == last["epoch"])

    def _restart(self, node: int, log: tuple[int, ...]) -> None:
        """The disk has what the core has put there, and of the log what the module says."""
        disk = self._player.member(node).election()
        assert disk is not None, node
        self._do(f"crash {node}")
        words = [f"epoch={disk.epoch}"]
        if disk.leader_id >= 0:
            words.append(f"leader={disk.leader_id}")
        if disk.voted is not None:
            words.append(f"voted={disk.voted.id}")
        if log:
            words.append(f"log={_log(log)}")
        self._sent[node].clear()
        self._do(" ".join((f"start {node}", *words)))


def _fact(before: ModuleState, step: Step) -> tuple[object, ...]:
    """What a step says, for those that say something."""
    name = f"n{step.who}"
    mine = of_module(before, step.who)
    if step.what == "Fetch":
        return step.what, name, mine.epoch, len(mine.log), mine.log[-1] if mine.log else 0
    return step.what, name, mine.epoch, step.to


def _log(epochs: tuple[int, ...]) -> str:
    return ",".join(f"{end}@{epoch}" for end, epoch in enumerate(epochs, 1))


def _shown(step: Step) -> str:
    about = {"LearnEpoch": f"epoch {step.end}", "LearnLeader": f"{step.to} of epoch {step.end}"}.get(step.what)
    if about is None:
        about = " ".join([*([f"for {step.to}"] if step.to else []), *([f"up to {step.end}"] if step.end else [])])
    return f"{step.who}: {step.what} {about}".rstrip()


def transcript(played: Played, title: str) -> str:
    """A behaviour as a file for `tests/transcripts`."""
    lines, last = [f"# {title}"], ""
    for one in played.lines:
        if one.step != last:
            lines.append(f"# {one.step}")
            last = one.step
        lines += [f"> {one.command}", *one.effects]
    return "\n".join(lines) + "\n"


__all__ = ["REASONS", "Played", "UnknownRefusal", "play", "transcript"]
