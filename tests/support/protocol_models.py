"""The small models of `docs/protocol`, and mutations of each specification that its properties must catch."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

QUORUM_PROPERTIES: Final = (
    "INVARIANTS OneLeaderPerEpoch OneVotePerEpoch LogsMatch LeadersAreComplete CommittedIsOne CommittedIsOnDisk"
    " SnapshotsAreCommitted CandidatesWerePreferred\n"
    "PROPERTIES EpochsRise VotesStay WatermarksRise\n"
)


def quorum(
    begin: str,
    *,
    epoch: int,
    end: int,
    lives: int = 0,
    snapshots: int = 0,
    changes: int = 0,
    no_pre_votes: str = "{One}",
    is_brief: bool = True,
) -> str:
    """The configuration of QuorumModel.tla within these bounds, from one of its first states."""
    symmetry = "SYMMETRY Symmetric\n" if begin == "FromInit" and no_pre_votes == "{}" else ""
    return (
        f"SPECIFICATION {begin}\nCONSTANTS\n  One = One\n  Two = Two\n  Three = Three\n"
        "  Replicas = {One, Two, Three}\n"
        f"  First <- Everybody\n  NoPreVotes = {no_pre_votes}\n  None = None\n"
        f"  MaxEpoch = {epoch}\n  MaxEnd = {end}\n  MaxLives = {lives}\n"
        f"  MaxSnapshots = {snapshots}\n  MaxChanges = {changes}\n"
        f"  Brief = {str(is_brief).upper()}\n"
        f"CONSTRAINT Bound\n{symmetry}VIEW Relevant\n{QUORUM_PROPERTIES}"
    )


class Mutation(Struct, frozen=True):
    """A rule of a specification that is broken, and the property that must see it."""

    name: str
    module: str
    rule: str
    """The text of the module that is replaced."""
    broken: str
    configuration: str
    caught_by: tuple[str, ...]
    """The properties of which TLC names one."""


_LED: Final = quorum("FromLed", epoch=2, end=2)
_CRASHED: Final = quorum("FromLed", epoch=2, end=2, lives=1)
_LONGER: Final = quorum("FromLed", epoch=2, end=3, lives=1)
_ONE_EPOCH: Final = quorum("FromLed", epoch=1, end=3)
_SPLIT: Final = quorum("FromSplit", epoch=5, end=3)
QUORUM_MUTATIONS: Final = (
    Mutation(
        "vote without a look at the log",
        "Quorum",
        "  /\\ vote[v] = None => AtLeast(b.last, EndOf(log[v], Len(log[v])))\n",
        "",
        _LED,
        ("LeadersAreComplete", "CommittedIsOne"),
    ),
    Mutation(
        "two votes in an epoch",
        "Quorum",
        "  /\\ vote[v] \\in {None, b.candidate}\n",
        "",
        _LED,
        ("OneVotePerEpoch", "OneLeaderPerEpoch", "VotesStay"),
    ),
    Mutation(
        "a vote is lost in a crash",
        "Quorum",
        "  /\\ vote' = [vote EXCEPT ![n] = IF later THEN None ELSE @]\n",
        "  /\\ vote' = [vote EXCEPT ![n] = None]\n",
        _CRASHED,
        ("VotesStay",),
    ),
    Mutation(
        "an epoch is lost in a crash",
        "Quorum",
        "  /\\ epoch' = [epoch EXCEPT ![n] = IF later THEN LastEpoch(kept) ELSE @]\n",
        "  /\\ epoch' = [epoch EXCEPT ![n] = LastEpoch(kept)]\n",
        _CRASHED,
        ("EpochsRise",),
    ),
    Mutation(
        "a leader leads on after a crash",
        "Quorum",
        '[] leader[n] = n -> {"Resigned"}',
        '[] leader[n] = n -> {"Leader"}',
        _LONGER,
        ("LogsMatch",),
    ),
    Mutation(
        "records of earlier epochs are committed alone",
        "Quorum",
        "  /\\ EpochAt(log[n], end) = epoch[n]\n",
        "",
        _SPLIT,
        ("LeadersAreComplete", "CommittedIsOne"),
    ),
    Mutation(
        "one replica commits",
        "Quorum",
        "  /\\ IsMajority({m \\in Voters(n) : Has(n, m, end)}, Voters(n))\n",
        "  /\\ Has(n, n, end)\n",
        _ONE_EPOCH,
        ("CommittedIsOnDisk",),
    ),
    Mutation(
        "a Fetch acknowledges what is not on disk",
        "Quorum",
        "  /\\ flushed[n] = Len(log[n])\n\nEnd(n)",
        "\nEnd(n)",
        _ONE_EPOCH,
        ("CommittedIsOnDisk",),
    ),
    Mutation(
        "a Fetch is valid by its offset alone",
        "Quorum",
        "end.epoch = last.epoch /\\ end.end >= last.end",
        "Len(l) >= last.end",
        _SPLIT,
        ("LogsMatch", "CommittedIsOne"),
    ),
    Mutation(
        "a nominee asks with what is not on disk",
        "Quorum",
        "last |-> EndOf(log[n], flushed[n])]",
        "last |-> EndOf(log[n], Len(log[n]))]",
        _CRASHED,
        ("LeadersAreComplete",),
    ),
    Mutation(
        "the next change of the voters does not wait",
        "Quorum",
        "  /\\ V # Voters(n) => VotersEnd(log[n], Len(log[n])) <= hw[n]\n",
        "",
        quorum("FromLed", epoch=2, end=4, changes=2),
        ("LeadersAreComplete", "CommittedIsOne", "CommittedIsOnDisk"),
    ),
    Mutation(
        "a nominee stands without pre-votes",
        "Quorum",
        "  /\\ IsMajority(Granted(n, TRUE), Voters(n))\n",
        "",
        quorum("FromLed", epoch=2, end=2, no_pre_votes="{}"),
        ("CandidatesWerePreferred",),
    ),
)
WHOLE_MODELS: Final = {
    "one epoch": ("QuorumModel", quorum("FromLed", epoch=1, end=2, is_brief=False), 2_560),
    "crashes": ("QuorumModel", quorum("FromLed", epoch=1, end=2, lives=1), 7_035),
    "snapshots": ("QuorumModel", quorum("FromLed", epoch=1, end=2, snapshots=1), 16_642),
    "figure 8": ("QuorumModel", quorum("FromSplit", epoch=4, end=3), 38_890),
}
"""Models that TLC explores to their end in seconds: the module, the configuration, the number of states."""
