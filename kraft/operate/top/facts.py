"""The rows as one JSON object. Times are milliseconds; null means "not known"."""

from __future__ import annotations

from typing import Any

from kraft.operate.top.model import BrokerRow, ReplicaRow, View
from metadata_log.times import iso_time


def facts(view: View) -> dict[str, Any]:
    """The fields of `kraft top --json`."""
    metadata = view.metadata
    return {
        "time": iso_time(view.at_ms),
        "clusterId": view.cluster_id,
        "leaderId": view.leader_id,
        "leaderEpoch": view.epoch,
        "highWatermark": view.high_watermark,
        "withoutLeaderMs": view.without_leader_ms,
        "problem": view.problem,
        "voters": view.voters,
        "replicas": [_replica(one) for one in view.replicas],
        "answers": [
            {
                "id": one.id,
                "address": one.address,
                "epoch": one.epoch,
                "leaderId": one.leader_id,
                "failure": one.problem,
            }
            for one in view.answers
        ],
        "elections": [
            {"epoch": one.epoch, "leaderId": one.leader_id, "time": iso_time(one.at_ms), "offset": one.offset}
            for one in view.elections
        ],
        "brokers": None if metadata is None else [_broker(one) for one in view.brokers],
        "partitions": None
        if metadata is None
        else {
            "offset": metadata.offset,
            "ageMs": view.metadata_age_ms,
            "topics": metadata.topics,
            "partitions": metadata.partitions,
            "leaderless": metadata.leaderless,
            "belowMinIsr": metadata.below_min_isr,
            "troubled": [
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "trouble": one.trouble.value,
                    "replicas": one.replicas,
                    "isr": one.isr,
                    "elr": one.elr,
                    "minIsr": one.min_isr,
                }
                for one in metadata.troubled
            ],
        },
        "metadataNote": view.metadata_note,
        "metrics": [
            {
                "address": one.address,
                "nodeId": one.node_id,
                "noLeaderReason": one.no_leader_reason,
                "failure": one.problem,
            }
            for one in view.figures
        ],
        "requests": view.requests,
    }


def _replica(row: ReplicaRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "directoryId": row.directory_id,
        "role": row.role,
        "epoch": row.epoch,
        "logEndOffset": row.end_offset,
        "lag": row.lag,
        "lastFetchMsAgo": row.fetched_ms,
        "lastCaughtUpMsAgo": row.caught_up_ms,
        "fsyncMs": row.fsync_ms,
        "longestTurnMs": row.turn_ms,
    }


def _broker(row: BrokerRow) -> dict[str, Any]:
    one = row.broker
    return {
        "id": one.id,
        "state": one.state,
        "rack": one.rack,
        "endpoint": one.endpoint,
        "replicas": one.replicas,
        "inSync": one.in_sync,
        "leads": one.leads,
        "lag": row.lag,
        "lastFetchMsAgo": row.fetched_ms,
    }
