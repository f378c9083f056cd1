"""The places at which a check fails, found in the source, and the places that a run of a case reaches.

A site is a `raise InvariantViolated`, a `_raise_if(…)`, or in a ledger the `return` of a description of a violation.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any

from msgspec import Struct

import kraft
from kraft.invariants.violation import InvariantViolated

ROOT = Path(kraft.__file__).parent
CHECKED = ("invariants", "sim", "testing")
"""The packages and modules with checks."""
LEDGERS = ROOT / "invariants"
DESCRIPTIONS = ("str | None", "str")
"""The types of the functions that return a description of a violation, or nothing."""
TELLERS = ("_told", "_keys", "_difference", "_setting", "setting", "__repr__", "__str__")
"""Functions that return a text that describes no violation."""
_DIFFERENCES = "tests/kraft/invariants/test_cluster_model.py::test_a_difference_of_each_family_is_named"
_CLIENTS = "tests/kraft/sim/test_sim_clients.py"
_FAMILIES = {"difference": 5, "partition_difference": 2, "_other_difference": 3}
"""The number of differences that each function of the model names."""
REACHED_BY_RUNS: dict[str, str] = {
    "kraft.invariants.compaction.CompactionLedger.looked#0": "cleaning-keeps-the-first-value",
    "kraft.invariants.groups.GroupLedger._check_generation#3": "rebalances-keep-the-generation",
    "kraft.invariants.groups.GroupLedger._check_members#0": "partitions-change-hands-at-once",
    "kraft.invariants.groups.GroupLedger.accepted#0": "classic-members-sync-at-any-epoch",
    "kraft.invariants.groups.GroupLedger.fetched#1": "coordinators-show-what-is-not-committed",
    "kraft.invariants.groups.GroupLedger.told#0": "sync-of-any-generation",
    "kraft.invariants.identities.IdentityLedger.asked#0": "downloads-go-on-with-another-leader",
    "kraft.invariants.identities.IdentityLedger.counts#0": "fetches-of-any-directory-count-for-a-voter",
    "kraft.invariants.leaderships.LeadershipLedger._check_isr#0": "older-answers-of-the-controller-are-taken",
    "kraft.invariants.leaderships.LeadershipLedger._check_remotes#0": "follower-offsets-outlive-a-leadership",
    "kraft.invariants.leaderships.LeadershipLedger.counted#0": "fetches-of-former-incarnations-count",
    "kraft.invariants.liveness.Liveness.producers#0": "failed-directories-leave-producers-waiting",
    "kraft.invariants.liveness.Liveness.watermark#0": "watermark-waits-for-ever",
    "kraft.invariants.partitions.PartitionLedger._check_clearing#0": "another-setting-empties-the-elr",
    "kraft.invariants.partitions.PartitionLedger._check_fenced#0": "fenced-broker-leads-on",
    "kraft.invariants.partitions.PartitionLedger._check_last_known#0": "last-known-leaders-are-not-noted",
    "kraft.invariants.partitions.PartitionLedger._check_registration#2": "every-restart-is-trusted",
    "kraft.invariants.partitions.PartitionLedger._check_unclean#0": "reassignment-without-catching-up",
    "kraft.invariants.partitions.PartitionLedger._check_unclean#1": "unregistered-brokers-stay-in-their-isrs",
    "kraft.invariants.partitions._check_shape#2": "leader-from-outside-of-the-isr",
    "kraft.invariants.quorum.Invariants._check_election#1": "vote-forgotten-on-following",
    "kraft.invariants.quorum.Invariants._check_high_watermark#1": "records-of-later-epochs-are-appended",
    "kraft.invariants.quorum.Invariants._check_not_removed#0": "removed-leader-leads-on",
    "kraft.invariants.quorum.Invariants._cut#0": "epoch-ends-where-it-begins",
    "kraft.invariants.quorum.Invariants.fetched#0": "fetch-before-flush",
    "kraft.invariants.quorum.Invariants.granted#0": "vote-again",
    "kraft.invariants.quorum.Invariants.started#0": "vote-forgotten-at-the-start",
    "kraft.invariants.quorum.Invariants.stepped#1": "follower-believes-any-high-watermark",
    "kraft.invariants.records.RecordLedger._add#0": "nothing-is-recovered-after-a-crash",
    "kraft.invariants.records.RecordLedger._add#1": "duplicates-are-appended",
    "kraft.invariants.records.RecordLedger._check_committed_read#0": "readers-of-committed-records-read-all",
    "kraft.invariants.records.RecordLedger._check_committed_read#1": "aborted-transactions-are-not-named",
    "kraft.invariants.records.RecordLedger._check_leader#0": "isr-expanded-before-catching-up",
    "kraft.invariants.records.RecordLedger._check_loss#1": "flush-messages-is-forgotten",
    "kraft.invariants.records.RecordLedger._check_members#0": "watermark-of-the-leader-alone",
    "kraft.invariants.records.RecordLedger._check_truncated#0": "moved-logs-lose-their-tail",
    "kraft.invariants.records.RecordLedger._compare_committed#0": "recovery-believes-every-checksum",
    "kraft.invariants.records.RecordLedger._note_watermark#0": "followers-believe-any-watermark",
    "kraft.invariants.records.RecordLedger.answered#0": "duplicates-get-a-new-offset",
    "kraft.invariants.records.RecordLedger.answered#1": "min-isr-is-not-checked",
    "kraft.invariants.records.RecordLedger.consumed_by_client#0": "members-get-what-is-not-replicated",
    "kraft.invariants.shares.ShareLedger._after_snapshot#0": "copies-of-initialize-begin-anew",
    "kraft.invariants.shares.ShareLedger.acknowledged#0": "anybody-acknowledges",
    "kraft.invariants.shares.ShareLedger.delivered#0": "accepted-records-are-free-again",
    "kraft.invariants.shares.ShareLedger.delivered#1": "locks-end-early",
    "kraft.invariants.shares.ShareLedger.delivered#2": "deliveries-have-no-limit",
    "kraft.invariants.shares.ShareLedger.delivered#3": "deliveries-are-not-counted",
    "kraft.invariants.shares.ShareLedger.loaded#1": "snapshots-of-shares-lack-states",
    "kraft.invariants.shares.ShareLedger.loaded#2": "acknowledgements-count-before-they-are-written",
    "kraft.invariants.shares.ShareLedger.pruned#0": "share-coordinators-answer-before-the-watermark",
    "kraft.invariants.transactions.TransactionLedger._resolve#1": "cleaning-takes-markers-at-once",
    "kraft.invariants.transactions.TransactionLedger.committed#1": "fenced-producers-may-add-partitions",
    "kraft.invariants.transactions.TransactionLedger.initialized#0": "new-producers-keep-the-epoch",
    "kraft.invariants.transactions.TransactionLedger.initialized#1": "coordinators-answer-before-the-watermark",
    "kraft.sim.nodes.stale_requests.StaleRequests.answered#0": "former-lives-are-listened-to",
    "kraft.sim.nodes.stale_requests.StaleRequests.answered#1": "fenced-brokers-in-an-isr",
    "kraft.sim.world.check_quorum.CheckQuorum.led#0": "check-quorum-missing",
    "kraft.sim.world.signs_of_life.SignsOfLife._check_gone#0": "refusal-is-remembered",
    "kraft.sim.world.signs_of_life.SignsOfLife.pre_granted#0": "pre-votes-against-a-live-leader",
    "kraft.sim.world.world.World._start#0": "damaged-quorum-state-is-a-first-start",
    "kraft.sim.world.world.World._suspected#0": "vote-of-a-past-epoch-counts",
    "kraft.invariants.partitions._raise_if#0": "last-known-leaders-stay",
    "kraft.invariants.voters.VoterLedger.not_made#0": "voter-change-answered-at-once",
    "kraft.testing.records.RecordCheck.check#0": (
        "tests/kraft/test_testing_brokers.py::test_a_lost_acknowledged_record_is_found"
    ),
    "kraft.sim.nodes.broker_contacts.BrokerContacts._check_expiry#0": "an-old-session-fences-the-new-incarnation",
    "kraft.sim.nodes.broker_contacts.BrokerContacts._check_unfencing#0": "unfenced-before-its-own-registration",
    "kraft.sim.workloads.client_history.ClientHistory._check_sessions#0": "session-dies-in-use",
    "kraft.sim.workloads.voter_watch.VoterWatch._answered#0": "voter-change-answered-at-once",
    "kraft.sim.world.read_watch.ReadWatch.answered#0": f"{_CLIENTS}::test_a_read_has_one_answer",
    "kraft.sim.world.read_watch.ReadWatch.answered#1": (
        f"{_CLIENTS}::test_a_deposed_leader_that_answers_a_read_is_a_violation"
    ),
    "kraft.sim.world.read_watch.ReadWatch.answered#2": (
        f"{_CLIENTS}::test_a_read_sees_what_was_committed_before_it_began"
    ),
    **{
        f"kraft.invariants.cluster_model.ClusterModel.{function}#{number}": _DIFFERENCES
        for function, count in _FAMILIES.items()
        for number in range(count)
    },
}
"""The sites that no case reaches, each with the mutant or the test that reaches the site."""


class Case(Struct, frozen=True):
    """A story that ends with a violation, and the message of the violation."""

    name: str
    message: str
    play: Callable[[], None]


class Cases:
    """The cases of one module; the instance is the decorator of a case."""

    def __init__(self) -> None:
        self.all: list[Case] = []

    def __call__(self, message: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
        def add(play: Callable[[], None]) -> Callable[[], None]:
            assert play.__name__ not in [one.name for one in self.all], play.__name__
            self.all.append(Case(play.__name__, message, play))
            return play

        return add


class Site(Struct, frozen=True, order=True):
    """One place at which a check fails. `name` holds no line number: module, function, and number in the function."""

    path: str
    first: int
    last: int
    name: str

    def holds(self, path: str, line: int) -> bool:
        """Whether a line belongs to this site."""
        return self.path == path and self.first <= line <= self.last


def all_sites() -> list[Site]:
    """Every site in the source of the packages with checks."""
    paths = chain.from_iterable(sorted((ROOT / name).rglob("*.py")) or [ROOT / name] for name in CHECKED)
    return sorted(site for path in paths for site in _sites_of(path))


def _sites_of(path: Path) -> Iterator[Site]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
    for scope, function in _functions(tree, module):
        returned = ast.unparse(function.returns or ast.Constant(None))
        describes = LEDGERS in path.parents and returned in DESCRIPTIONS and function.name not in TELLERS
        found = [one for one in ast.walk(function) if _is_site(one, describes=describes)]
        for count, one in enumerate(sorted(found, key=_line)):
            assert isinstance(one, ast.stmt)
            yield Site(str(path), one.lineno, one.end_lineno or one.lineno, f"{scope}.{function.name}#{count}")


def _functions(tree: ast.AST, scope: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield scope, child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{scope}.{child.name}")


def _is_site(node: ast.AST, *, describes: bool) -> bool:
    match node:
        case ast.Raise(exc=ast.Call(func=ast.Name(id=InvariantViolated.__name__))):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="_raise_if"))):
            return True
        case ast.Return(value=ast.Constant(value=None | "")) | ast.Return(value=None):
            return False
        case ast.Return():
            return describes
        case _:
            return False


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def played(case: Case) -> tuple[InvariantViolated | None, set[tuple[str, int]]]:
    """Play a case: the violation, and the lines of its traceback and of the descriptions that functions returned."""
    told: set[tuple[str, int]] = set()

    def note(frame: FrameType, event: str, given: Any) -> None:
        if event == "return" and isinstance(given, str) and given:
            told.add((frame.f_code.co_filename, frame.f_lineno))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        case.play()
    except InvariantViolated as violation:
        sys.setprofile(before)
        traceback = violation.__traceback__
        lines = set()
        while traceback is not None:
            lines.add((traceback.tb_frame.f_code.co_filename, traceback.tb_lineno))
            traceback = traceback.tb_next
        return violation, lines | told
    finally:
        sys.setprofile(before)
    return None, told
