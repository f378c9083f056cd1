"""Mutants of a replica after a commit: the batches that the application receives, and the responses to clients."""

from __future__ import annotations

from typing import Any

from kraft.committed import CommittedBatch
from kraft.limits import ANSWERS_PER_TURN
from kraft.replica.applier import Applier
from kraft.replica.interface.actions import ForRequest, ForSubmit, Proposal
from kraft.replica.interface.events import SubmitDone
from kraft.replica.proposals import Proposals, success
from metadata_log.image import ImageHistory
from planted_bugs.registry import Patches, Scope, mutant
from transport.protocol.errors import Error

# The application


@mutant(Scope.REPLICA, budget=20)
def apply_twice(code: Patches) -> None:
    """The application receives the last committed batch twice."""
    advance = Applier.advance

    def advance_and_repeat(applier: Applier, high_watermark: int) -> list[CommittedBatch]:
        batches = list(advance(applier, high_watermark))
        return batches + batches[-1:]

    code.replace(Applier, "advance", advance_and_repeat)


@mutant(Scope.REPLICA, budget=20)
def apply_what_is_not_committed(code: Patches) -> None:
    """The application receives the whole log, committed or not."""
    advance = Applier.advance
    code.replace(Applier, "advance", lambda applier, high_watermark: advance(applier, applier._log.end_offset))


@mutant(Scope.REPLICA, budget=200)
def apply_what_was_appended(code: Patches) -> None:
    """A former leader applies the records that it appended, not the committed ones at the same offsets."""
    code.replace(Applier, "forget", lambda applier: None)


@mutant(Scope.CLUSTER, budget=20)
def no_rollback(code: Patches) -> None:
    """A controller that loses the leadership keeps the metadata of records that were never committed."""

    def rollback(history: ImageHistory) -> None:
        history.committed = history.latest
        history._uncommitted.clear()

    code.replace(ImageHistory, "rollback", rollback)


# The clients


@mutant(Scope.REPLICA, budget=20)
def acknowledge_what_is_appended(code: Patches) -> None:
    """A client receives a success once its record is appended."""
    propose = Proposals.propose

    def propose_and_acknowledge(proposals: Proposals, proposal: Proposal, now_ms: int) -> None:
        propose(proposals, proposal, now_ms)
        for held in proposals._deferred.release(proposals._core.next_append_offset, ANSWERS_PER_TURN):
            proposals._outbox.outputs.append(success(held, proposals._core.leader))

    code.replace(Proposals, "propose", propose_and_acknowledge)


@mutant(Scope.REPLICA, budget=20)
def acknowledge_what_is_lost(code: Patches) -> None:
    """A leader that loses its leadership reports success for all pending submissions."""
    refuse = Proposals.refuse

    def not_refused(
        proposals: Proposals,
        waiting: ForRequest | ForSubmit | None,
        error: Error,
        now_ms: int,
        *,
        is_uncertain: bool = False,
        **more: Any,
    ) -> None:
        if is_uncertain and isinstance(waiting, ForSubmit):
            proposals._outbox.outputs.append(SubmitDone(submit_id=waiting.submit_id, leader=proposals._core.leader))
        else:
            refuse(proposals, waiting, error, now_ms, is_uncertain=is_uncertain, **more)

    code.replace(Proposals, "refuse", not_refused)


@mutant(Scope.REPLICA, budget=50)
def refuse_what_is_uncertain(code: Patches) -> None:
    """A leader that loses its leadership reports pending submissions as refused, although they may yet be committed."""
    refuse = Proposals.refuse

    def surely_refused(
        proposals: Proposals,
        waiting: ForRequest | ForSubmit | None,
        error: Error,
        now_ms: int,
        *,
        is_uncertain: bool = False,
        **more: Any,
    ) -> None:
        refuse(proposals, waiting, error, now_ms, is_uncertain=False, **more)

    code.replace(Proposals, "refuse", surely_refused)
