"""Bugs in rules that `docs/protocol/Group.tla` states, for `bench/traces.py --groups`: a planted one of the simulator,
and nine more, chosen before any of them was tried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from kraft.coordinators.groups import offsets
from kraft.coordinators.groups.assignors import PartitionsByTopic
from kraft.coordinators.groups.consumer import groups, owners, reconciling
from kraft.coordinators.groups.consumer.draft import Draft
from kraft.coordinators.groups.consumer.member import Assigned, Member, MemberState
from planted_bugs import MUTANTS
from planted_bugs.registry import Patches


def revocations_need_no_confirmation(code: Patches) -> None:
    """What is not in the target of a member is free at once, whatever the member owns."""
    code.replace(reconciling, "owns_any", lambda owned, partitions: False)


def what_is_revoked_is_free(code: Patches) -> None:
    """A partition that a member is still to give up is given to the next one."""

    def held(member: Member | None) -> Assigned:
        return {} if member is None else member.assigned

    code.replace(owners, "_held", held)


def member_epochs_stay(code: Patches) -> None:
    """A member that has reached its target keeps its epoch."""
    sound = reconciling._updated

    def updated(member: Member, state: MemberState, epoch: int, assigned: Assigned, revoking: Assigned) -> Member:
        return sound(member, state, member.epoch or epoch, assigned, revoking)

    code.replace(reconciling, "_updated", updated)


def epoch_of_the_target_before_the_revocation(code: Patches) -> None:
    """A member that has still something to give up is in the epoch of its target."""
    sound = reconciling._next

    def next_one(*given: Any) -> Member:
        group, member, target, topics, owned, _ = given
        return sound(group, member, target, topics, owned, target.epoch)

    code.replace(reconciling, "_next", next_one)


def group_epoch_stays_when_a_member_goes(code: Patches) -> None:
    """A group that loses a member stays in its epoch."""
    sound = Draft.epoch

    def epoch(draft: Draft, number: int, metadata_hash: int) -> None:
        has_lost = bool(draft.records) and draft.records[-1].value is None
        sound(draft, draft.group.epoch if has_lost else number, metadata_hash)

    code.replace(Draft, "epoch", epoch)


def targets_overlap(code: Patches) -> None:
    """The first partition is in the target of every member."""
    sound = Draft.target

    def target(draft: Draft, member_id: str, parts: PartitionsByTopic) -> None:
        sound(draft, member_id, {topic: tuple({0, *numbers}) for topic, numbers in parts.items()})

    code.replace(Draft, "target", target)


def commits_count_in_any_epoch(code: Patches) -> None:
    """An offset is taken whatever member commits it, in whatever epoch."""
    code.replace(offsets, "check_commit", lambda *given, **named: lambda topic_id, partition: None)


def targets_run_ahead(code: Patches) -> None:
    """A target is noted as the one of the next group epoch."""
    sound = Draft.target_epoch
    code.replace(Draft, "target_epoch", lambda draft, epoch, now_ms: sound(draft, epoch + 1, now_ms))


def surplus_is_kept(code: Patches) -> None:
    """A member that has reached its target keeps what is not in it."""
    sound = reconciling.reconciled

    def reconciled(group: Any, member: Member, *given: Any, **named: Any) -> Member:
        after = sound(group, member, *given, **named)
        if after.state is not MemberState.STABLE or not member.assigned:
            return after
        kept = {topic: {**member.assigned.get(topic, {}), **has} for topic, has in after.assigned.items()}
        return replace(after, assigned=kept)

    code.replace(groups, "reconciled", reconciled)


OF_GROUPS: Final[dict[str, Callable[[Patches], None]]] = {
    "partitions-change-hands-at-once": MUTANTS["partitions-change-hands-at-once"].plant,
    "revocations-need-no-confirmation": revocations_need_no_confirmation,
    "what-is-revoked-is-free": what_is_revoked_is_free,
    "member-epochs-stay": member_epochs_stay,
    "epoch-of-the-target-before-the-revocation": epoch_of_the_target_before_the_revocation,
    "group-epoch-stays-when-a-member-goes": group_epoch_stays_when_a_member_goes,
    "targets-overlap": targets_overlap,
    "commits-count-in-any-epoch": commits_count_in_any_epoch,
    "targets-run-ahead": targets_run_ahead,
    "surplus-is-kept": surplus_is_kept,
}
