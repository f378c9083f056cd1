"""The small models of `docs/protocol`, and mutations of each specification that its properties must catch.

    PYTHONPATH=tests python -m support.protocol_models

lets TLC judge the mutations whose texts have changed, and keeps what it said.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from support.tlc import MODULES, Model, keep_verdicts

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


def _constants(**values: object) -> str:
    return "CONSTANTS\n" + "".join(f"  {name} = {value}\n" for name, value in values.items())


def partition(
    begin: str, *, min_isr: int, epoch: int, version: int, end: int, crashes: int = 0, brokers: str = "{One, Two}"
) -> str:
    """The configuration of PartitionModel.tla within these bounds, from one of its first states."""
    names = {name: name for name in ("One", "Two", "Three", "None")}
    bounds = {"MaxEpoch": epoch, "MaxVersion": version, "MaxEnd": end, "MaxCrashes": crashes, "MaxStops": 0, "Lag": 1}
    constants = _constants(
        **names,
        Brokers=brokers,
        MinIsr=min_isr,
        ControllerMinIsr=min_isr,
        HasElr="TRUE",
        MayBeUnclean="FALSE",
        **bounds,
    )
    return (
        f"SPECIFICATION {begin}\n{constants}CONSTRAINT Bound\nVIEW Relevant\n"
        "INVARIANTS OneLeaderPerEpoch LogsMatch LeadersAreComplete ElectableAreComplete WatermarksAreCommitted"
        " StateIsSound\nPROPERTIES WatermarksRise EpochsRise\n"
    )


def transaction(version: int, *, epoch: int, records: int) -> str:
    """The configuration of TransactionModel.tla for a version of transactions, within these bounds."""
    names = {name: name for name in ("One", "Two", "P1", "P2")}
    bounds = {"MaxEpoch": epoch, "MaxBegun": 2, "MaxRecords": records}
    constants = _constants(**names, Processes="{One, Two}", Partitions="{P1, P2}", Version=version, **bounds)
    return (
        f"SPECIFICATION FromInit\n{constants}CONSTRAINT Bound\nSYMMETRY Symmetric\nVIEW Relevant\n"
        "INVARIANTS TransactionsAreAtomic DecisionsHold NothingIsMissing NoneHangs OneAtATime NoDuplicates EpochsRise\n"
        "PROPERTIES DecisionsStay\n"
    )


def group(*, epoch: int, partitions: str = "{P1}") -> str:
    """The configuration of GroupModel.tla within these bounds."""
    names = {name: name for name in ("One", "Two", "P1", "P2")}
    constants = _constants(**names, Members="{One, Two}", Partitions=partitions, MaxEpoch=epoch)
    return (
        f"SPECIFICATION FromInit\n{constants}CONSTRAINT Bound\nSYMMETRY Symmetric\nVIEW Relevant\n"
        "INVARIANTS OneOwner OwnedIsHeld HeldByOne CommitsAreFenced EpochsInOrder SettledIsTarget\n"
        "PROPERTIES EpochsRise\n"
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

    @property
    def model(self) -> Model:
        """The model with the broken rule."""
        text = (MODULES / f"{self.module}.tla").read_text()
        assert text.count(self.rule) == 1, self.rule
        return Model(f"{self.module}Model", self.configuration, {self.module: text.replace(self.rule, self.broken)})


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
_PAIR: Final = partition("FromPair", min_isr=1, epoch=3, version=3, end=2, crashes=1)
_PAIR_RUNNING: Final = partition("FromPair", min_isr=1, epoch=3, version=3, end=2)
_SINGLE: Final = partition("FromSingle", min_isr=1, epoch=2, version=4, end=2)
_ALONE: Final = partition("FromAlone", min_isr=2, epoch=3, version=3, end=2)
_ALONE_CRASHED: Final = partition("FromAlone", min_isr=2, epoch=3, version=4, end=2, crashes=1)
_THREE: Final = partition("FromPair", min_isr=1, epoch=3, version=3, end=2, brokers="{One, Two, Three}")
PARTITION_MUTATIONS: Final = (
    Mutation(
        "a proposed member does not count before the controller has decided",
        "Partition",
        "Maximal(l) == As(l).isr \\cup UNION {p.isr : p \\in Pending(l)}",
        "Maximal(l) == As(l).isr",
        _PAIR_RUNNING,
        ("ElectableAreComplete",),
    ),
    Mutation(
        "the end at which the epoch began is not looked at",
        "Partition",
        "  /\\ Reached(l, m, Ledger(l).begin)\n",
        "",
        _THREE,
        ("ElectableAreComplete",),
    ),
    Mutation(
        "a change by an old version is taken",
        "Partition",
        "  /\\ p.version = Now.version\n",
        "",
        _SINGLE,
        ("ElectableAreComplete",),
    ),
    Mutation(
        "a change with a process that has ended is taken",
        "Partition",
        "  /\\ \\A m \\in p.isr : Now.broker[m] = p.broker[m]\n",
        "",
        _PAIR,
        ("ElectableAreComplete",),
    ),
    Mutation(
        "a fetch of the process before counts",
        "Partition",
        "  /\\ f.life >= As(l).broker[m]\n",
        "",
        _PAIR,
        ("ElectableAreComplete",),
    ),
    Mutation(
        "who may have lost records stays eligible",
        "Partition",
        "LET lost == IF isClean[b] THEN {} ELSE {b}",
        "LET lost == {}",
        _ALONE_CRASHED,
        ("ElectableAreComplete",),
    ),
    Mutation(
        "commits below min.insync.replicas",
        "Partition",
        "  /\\ Cardinality(As(l).isr) >= MinIsr\n",
        "",
        _ALONE,
        ("ElectableAreComplete",),
    ),
    Mutation(
        "who was eligible stays so",
        "Partition",
        "IF ~HasElr \\/ Cardinality(isr) >= ControllerMinIsr THEN {} ELSE ((Now.elr",
        "IF FALSE THEN {} ELSE ((Now.elr",
        _PAIR,
        ("StateIsSound",),
    ),
    Mutation(
        "any replica may lead",
        "Partition",
        "ELSE IF elr \\ fenced # {} THEN {<<b, {b}, elr \\ {b}>> : b \\in elr \\ fenced}",
        "ELSE IF Brokers \\ fenced # {} THEN {<<b, {b}, elr \\ {b}>> : b \\in Brokers \\ fenced}",
        _PAIR,
        ("StateIsSound",),
    ),
    Mutation(
        "a fetch is valid by its offset alone",
        "Partition",
        "end.epoch = last.epoch /\\ end.end >= last.end",
        "Len(l) >= last.end",
        _PAIR,
        ("WatermarksAreCommitted",),
    ),
    Mutation(
        "a process acts by metadata older than its registration",
        "Partition",
        "  /\\ seen' = [seen EXCEPT ![b] = Len(meta')]\n",
        "  /\\ seen' = seen\n",
        _PAIR,
        ("LogsMatch",),
    ),
    Mutation(
        "the leader commits alone",
        "Partition",
        "  /\\ \\A m \\in Maximal(l) : Reached(l, m, end)\n",
        "",
        _PAIR,
        ("ElectableAreComplete",),
    ),
    Mutation(
        "a fenced broker joins the ISR",
        "Partition",
        "  /\\ \\A m \\in p.isr : m \\notin Now.fenced\n",
        "",
        _PAIR,
        ("StateIsSound",),
    ),
    Mutation(
        "truncated at the watermark",
        "Partition",
        "  /\\ ~IsValid(Ledger(b).log, End(b))\n  /\\ log' = [log EXCEPT ![b] = Prefix(@, Cut(b))]\n",
        "  /\\ log' = [log EXCEPT ![b] = Prefix(@, hw[b])]\n",
        _PAIR,
        ("ElectableAreComplete",),
    ),
)
_VERSION_1: Final = transaction(1, epoch=3, records=2)
_VERSION_2: Final = transaction(2, epoch=4, records=3)
TRANSACTION_MUTATIONS: Final = (
    Mutation(
        "a first record is taken without a verification",
        "Transaction",
        "  /\\ IsOngoing(p, r.epoch) \\/ [part |-> p, epoch |-> r.epoch] \\in guards\n",
        "",
        _VERSION_1,
        ("NoneHangs", "DecisionsHold"),
    ),
    Mutation(
        "a permission outlives the marker",
        "Transaction",
        "  /\\ guards' = {g \\in guards : g.part # p \\/ (Version = 2 /\\ g.epoch >= m.epoch)}\n",
        "  /\\ guards' = guards\n",
        _VERSION_1,
        ("DecisionsHold",),
    ),
    Mutation(
        "a marker does not fence",
        "Transaction",
        "  /\\ newest' = [newest EXCEPT ![p] = m.epoch]\n",
        "  /\\ newest' = newest\n",
        _VERSION_2,
        ("EpochsRise",),
    ),
    Mutation(
        "an aborted transaction keeps its epoch",
        "Transaction",
        '!.state = "PrepareAbort", !.epoch = @ + 1]',
        '!.state = "PrepareAbort"]',
        _VERSION_1,
        ("DecisionsHold",),
    ),
    Mutation(
        "a new process does not wait for the end of the old transaction",
        "Transaction",
        '  /\\ txn.state \\in Complete\n  /\\ txn\' = [txn EXCEPT !.state = "Empty"',
        '  /\\ txn\' = [txn EXCEPT !.state = "Empty"',
        _VERSION_2,
        ("NoneHangs", "DecisionsStay"),
    ),
    Mutation(
        "a zombie may end a transaction",
        "Transaction",
        "  /\\ one.t # None /\\ one.epoch = txn.epoch\n",
        "  /\\ one.t # None\n",
        _VERSION_1,
        ("DecisionsHold",),
    ),
    Mutation(
        "complete before all markers are written",
        "Transaction",
        "  /\\ \\A p \\in txn.parts : IsMarked(p)\n",
        "",
        _VERSION_2,
        ("NoneHangs",),
    ),
    Mutation(
        "committed with records on their way",
        "Transaction",
        '  /\\ kind = "Commit" => isResolved\n',
        "",
        _VERSION_1,
        ("NothingIsMissing",),
    ),
    Mutation(
        "a record is taken twice",
        "Transaction",
        "  /\\ r.seq = Numbered(p, r.epoch)\n",
        "",
        _VERSION_2,
        ("NoDuplicates",),
    ),
    Mutation(
        "a record of a newer epoch goes into an open transaction",
        "Transaction",
        "IsOngoing(p, epoch) == IsOpen(p) /\\ newest[p] = epoch",
        "IsOngoing(p, epoch) == IsOpen(p)",
        _VERSION_2,
        ("NoneHangs",),
    ),
    Mutation(
        "the end of a transaction does not raise the epoch",
        "Transaction",
        "epoch == one.epoch + (IF Version = 2 THEN 1 ELSE 0) IN",
        "epoch == one.epoch IN",
        _VERSION_2,
        ("NoneHangs",),
    ),
    Mutation(
        "a late marker counts",
        "Transaction",
        "IF Version = 2 THEN m.epoch > newest[m.part]",
        "IF Version = 2 THEN TRUE",
        _VERSION_2,
        ("OneAtATime",),
    ),
    Mutation(
        "a partition joins while the transaction ends",
        "Transaction",
        '  /\\ txn.state \\in Complete \\cup {"Ongoing"}\n',
        "",
        _VERSION_2,
        ("DecisionsStay",),
    ),
)
_ONE_PARTITION: Final = group(epoch=3)
_TWO_PARTITIONS: Final = group(epoch=3, partitions="{P1, P2}")
GROUP_MUTATIONS: Final = (
    Mutation(
        "a partition that somebody has is given away",
        "Group",
        "p \\notin member[o].assigned /\\ p \\notin member[o].revoking",
        "p \\notin member[o].revoking",
        _ONE_PARTITION,
        ("HeldByOne",),
    ),
    Mutation(
        "a partition that is being revoked is given away",
        "Group",
        "p \\notin member[o].assigned /\\ p \\notin member[o].revoking",
        "p \\notin member[o].assigned",
        _ONE_PARTITION,
        ("HeldByOne",),
    ),
    Mutation(
        "revoked without confirmation",
        "Group",
        "revoking == one.revoking \\cap owned",
        "revoking == {}",
        _ONE_PARTITION,
        ("OwnedIsHeld",),
    ),
    Mutation(
        "the epoch does not rise when more is revoked",
        "Group",
        "!.epoch = IF one.revoking = {} THEN @ ELSE @ + 1]",
        "!.epoch = @]",
        _TWO_PARTITIONS,
        ("CommitsAreFenced",),
    ),
    Mutation(
        "commits are taken in any epoch",
        "Group",
        "IsTaken(c) == c.life = member[c.who].life /\\ c.epoch = member[c.who].epoch",
        "IsTaken(c) == c.life = member[c.who].life",
        _ONE_PARTITION,
        ("CommitsAreFenced",),
    ),
    Mutation(
        "commits are taken of any process",
        "Group",
        "IsTaken(c) == c.life = member[c.who].life /\\ c.epoch = member[c.who].epoch",
        "IsTaken(c) == c.epoch = member[c.who].epoch",
        _ONE_PARTITION,
        ("CommitsAreFenced",),
    ),
    Mutation(
        "a member that joins again keeps what it had",
        "Group",
        "[life |-> ask.life, epoch |-> targetEpoch, assigned |-> {}, revoking |-> {}]",
        "[life |-> ask.life, epoch |-> targetEpoch, assigned |-> member[m].assigned, revoking |-> {}]",
        _ONE_PARTITION,
        ("CommitsAreFenced",),
    ),
    Mutation(
        "the surplus is dropped, not revoked",
        "Group",
        "[one EXCEPT !.assigned = @ \\cap target[m], !.revoking = surplus,",
        "[one EXCEPT !.assigned = @ \\cap target[m], !.revoking = {},",
        _ONE_PARTITION,
        ("OwnedIsHeld",),
    ),
)
MUTATIONS: Final = (*QUORUM_MUTATIONS, *PARTITION_MUTATIONS, *TRANSACTION_MUTATIONS, *GROUP_MUTATIONS)
WHOLE_MODELS: Final = {
    "one epoch": ("QuorumModel", quorum("FromLed", epoch=1, end=2, is_brief=False), 2_560),
    "crashes": ("QuorumModel", quorum("FromLed", epoch=1, end=2, lives=1), 7_035),
    "snapshots": ("QuorumModel", quorum("FromLed", epoch=1, end=2, snapshots=1), 16_642),
    "figure 8": ("QuorumModel", quorum("FromSplit", epoch=4, end=3), 38_890),
    "a partition on two brokers": ("PartitionModel", _ALONE, 5_912),
    "a partition on three brokers": (
        "PartitionModel",
        partition("FromPair", min_isr=1, epoch=3, version=3, end=1, brokers="{One, Two, Three}"),
        11_491,
    ),
    "a broker crashes": (
        "PartitionModel",
        partition("FromPair", min_isr=1, epoch=3, version=3, end=1, crashes=1),
        1_358,
    ),
    "transactions of version 1": ("TransactionModel", _VERSION_1, 16_549),
    "transactions of version 2": ("TransactionModel", _VERSION_2, 18_004),
    "a group of two members": ("GroupModel", group(epoch=2, partitions="{P1, P2}"), 11_350),
}
"""Models that TLC explores to their end in seconds: the module, the configuration, the number of states."""


if __name__ == "__main__":
    keep_verdicts(one.model for one in MUTATIONS)
