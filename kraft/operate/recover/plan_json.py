"""A plan as JSON, for other programs and for `kraft recover apply`."""

from __future__ import annotations

from typing import Any

from kraft.operate.recover.copies import MetadataCopy, VotersAt
from kraft.operate.recover.differences import Difference, Records
from kraft.operate.recover.inventory import CONTROLLER, LogDir
from kraft.operate.recover.plan import Plan
from kraft.operate.recover.steps import steps_of
from metadata_log.log.quorum_state_file import StoredElection


def plan_json(plan: Plan) -> dict[str, Any]:
    """The fields of a plan. Directories appear under their names; `directories` has the path of each."""
    hazards, inventory = plan.hazards, plan.inventory
    return {
        "given": {
            "controllers": [one.name for one in inventory.dirs if one.role == CONTROLLER],
            "brokers": [one.name for one in inventory.dirs if one.role != CONTROLLER],
        },
        "clusterId": inventory.cluster_id,
        "kraftVersion": plan.seed.quorum.kraft_version,
        "observersMaySeed": plan.options.observers,
        "directories": {one.name: directory_json(one) for one in inventory.dirs},
        "best": plan.best.name,
        "tiesWithBest": [one.name for one in plan.ties],
        "longest": plan.longest.name,
        "voterIds": None if plan.voters.ids is None else list(plan.voters.ids),
        "voterIdsFrom": plan.voters.source,
        "quorumPossibleWithoutRecovery": plan.is_quorum_possible,
        "firstSafeEpoch": plan.first_safe_epoch,
        "recoveryEpoch": plan.recovery_epoch,
        "appendAt": plan.append_at,
        "others": [difference_json(one) for one in plan.others],
        "brokersAhead": [difference_json(one) for one in plan.ahead],
        "lostRecords": [
            {"dir": one.name, **records_json(one.only_here)} for one in (*plan.others, *plan.ahead) if one.only_here
        ],
        "committedEnd": plan.committed_end,
        "uncommittedCandidates": None if plan.uncommitted is None else records_json(plan.uncommitted),
        "unknownLoss": None
        if plan.unknown_loss is None
        else {
            "seedTimestampMs": plan.unknown_loss.seed_ms,
            "newestTimestampMs": plan.unknown_loss.newest_ms,
            "newestIn": plan.unknown_loss.newest_in,
            "atLeastMs": plan.unknown_loss.newest_ms - plan.unknown_loss.seed_ms,
        },
        "strayPartitions": [
            {
                "broker": stray.broker,
                "dir": stray.files.name,
                "logEnd": stray.files.log_end,
                "topicId": None if stray.files.topic_id is None else str(stray.files.topic_id),
                "why": stray.why,
            }
            for stray in hazards.strays
        ],
        "strayBytes": sum(stray.files.size_bytes for stray in hazards.strays),
        "renamedStrays": {one.name: list(one.strays) for one in inventory.dirs if one.strays},
        "missingReplicas": [
            {"broker": one.broker, "dir": one.name, "logDir": one.directory, "isOnlyIsr": one.is_only_isr}
            for one in hazards.missing
        ],
        "epochsBehind": [
            {"broker": one.broker, "dir": one.name, "lastEpoch": one.last_epoch, "imageLeaderEpoch": one.image_epoch}
            for one in hazards.epochs_behind
        ],
        "nextProducerId": hazards.producer_ids.next_id,
        "maxProducerIdInBrokerLogs": hazards.producer_ids.highest_seen,
        "producerIdsMustBeRaised": hazards.producer_ids.must_be_raised,
        "truncateTo": plan.options.truncate_to,
        "configuredVoterIds": None if plan.options.voter_ids is None else list(plan.options.voter_ids),
        "brokersGone": list(plan.options.gone),
        "partitionsOfBrokersGone": [
            {"topic": one.topic, "partition": one.number, "isr": list(one.isr), "leader": one.leader}
            for one in plan.gone
        ],
        "brokersNotGiven": list(plan.not_given),
        "registrations": {
            "brokers": sorted(plan.image.brokers.by_id),
            "controllers": sorted(plan.image.controllers.by_id),
            "staleControllers": list(plan.stale_controllers),
        },
        "securityChanges": [
            {"type": one.type, "offset": one.offset, "timestampMs": one.timestamp_ms} for one in plan.security
        ],
        "brokerDamage": list(hazards.damages),
        "steps": list(steps_of(plan)),
    }


def directory_json(one: LogDir) -> dict[str, Any]:
    """The facts of one log directory."""
    facts: dict[str, Any] = {
        "path": one.path,
        "role": one.role,
        "nodeId": one.meta.node_id,
        "clusterId": one.meta.cluster_id,
        "directoryId": None if one.meta.directory_id is None else str(one.meta.directory_id),
    }
    return facts if one.copy is None else facts | _copy_json(one.copy)


def _copy_json(copy: MetadataCopy) -> dict[str, Any]:
    return {
        "logStart": copy.log_start,
        "logEnd": copy.end.offset,
        "lastEpoch": copy.end.epoch,
        "epochStarts": [[entry.epoch, entry.offset] for entry in copy.epochs.entries],
        "snapshots": [{"offset": one.offset, "epoch": one.epoch} for one in copy.snapshots],
        "quorumState": None if copy.quorum_state is None else _election_json(copy.quorum_state),
        "votersRecord": None if copy.quorum.voters is None else voters_json(copy.quorum.voters),
        "nextProducerId": -1 if copy.image is None else copy.image.producer_ids.next_producer_id,
        "damage": [str(damage) for damage in copy.damages]
        + ([copy.quorum_state_problem] if copy.quorum_state_problem else []),
        "unusable": copy.unusable,
    }


def _election_json(state: StoredElection) -> dict[str, Any]:
    return {
        "data_version": state.data_version,
        "leaderEpoch": state.leader_epoch,
        "leaderId": state.leader_id,
        "votedId": state.voted_id,
    }


def voters_json(voters: VotersAt) -> dict[str, Any]:
    """A voter set and its place."""
    return {
        "offset": voters.offset,
        "epoch": voters.epoch,
        "voters": [
            {
                "id": voter.voter_id,
                "directoryId": str(voter.voter_directory_id),
                "endpoints": [f"{one.name}://{one.host}:{one.port}" for one in voter.endpoints],
            }
            for voter in voters.record.voters
        ],
    }


def difference_json(one: Difference) -> dict[str, Any]:
    """A copy held against the best one."""
    return {
        "dir": one.name,
        "logEnd": one.log_end,
        "commonEnd": one.common_end,
        "onlyHere": 0 if one.only_here is None else one.only_here.count,
        "onlyHereByType": {} if one.only_here is None else one.only_here.by_type,
        "diverged": one.is_diverged,
    }


def records_json(some: Records) -> dict[str, Any]:
    """Some records: where they are and what they are about."""
    return {
        "fromOffset": some.start,
        "endOffset": some.end,
        "fromEpoch": some.first_epoch,
        "toEpoch": some.last_epoch,
        "records": some.count,
        "byType": some.by_type,
        "about": list(some.named),
    }
