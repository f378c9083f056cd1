"""The application of a broker with data, from the configuration of its node (Kafka: `BrokerServer.startup`)."""

from __future__ import annotations

from typing import Final

from kraft.broker.partitions import DataSettings
from kraft.broker.partitions.settings import cleaner_settings
from kraft.broker.request.settings import RequestSettings
from kraft.config import Config, ConfigError
from kraft.replica.hosts.serving_broker import ServingOptions, host_serving_broker
from kraft.replica.interface.application import ApplicationFactory
from metadata_log.disk import DirectoryDisk
from metadata_log.types import NEVER_MS

VERIFICATION: Final = "transaction.partition.verification.enable"
RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def node_with_data(config: Config, disk: DirectoryDisk) -> ApplicationFactory:
    """The factory of a broker with data, with the role of a controller if the configuration has both."""
    broker = broker_with_data(config, disk)
    if not config.is_controller:
        return broker
    # Loaded here, because a broker alone needs no controller.
    from kraft.replica.hosts.combined_host import host_combined

    return host_combined(broker)


def broker_with_data(config: Config, disk: DirectoryDisk) -> ApplicationFactory:
    """The factory of a broker that holds data and serves clients; raises `ConfigError` for what it cannot enforce."""
    static = {one.name: one.value for one in config.described if one.is_set and one.value is not None}
    move_rate = static.get("replica.alter.log.dirs.io.max.bytes.per.second")
    return host_serving_broker(
        disk,
        ServingOptions(
            log_dirs=config.log_dirs,
            data=DataSettings(
                broker_id=config.node_id,
                directories=(),
                static=static,
                lag_time_max_ms=config.replica_lag_time_max_ms,
                fetch_wait_max_ms=config.replica_fetch_wait_max_ms,
                fetch_min_bytes=config.replica_fetch_min_bytes,
                fetch_max_bytes=config.replica_fetch_max_bytes,
                fetch_response_max_bytes=config.replica_fetch_response_max_bytes,
                fetch_backoff_ms=config.replica_fetch_backoff_ms,
                watermark_checkpoint_ms=config.watermark_checkpoint_ms,
                offset_checkpoint_ms=config.offset_checkpoint_ms,
                retention_check_ms=config.retention_check_ms,
                file_delete_delay_ms=config.file_delete_delay_ms,
                has_cleaner=static.get("log.cleaner.enable", "true").strip().lower() != "false",
                cleaner=cleaner_settings(static),
                move_bytes_per_second=None if move_rate is None else int(move_rate),
                cleaner_backoff_ms=int(static.get("log.cleaner.backoff.ms", 15_000)),
                producer_expiry_check_ms=int(static.get("producer.id.expiration.check.interval.ms", 600_000)),
                flush_check_ms=int(static.get("log.flush.scheduler.interval.ms", NEVER_MS)),
                initial_task_delay_ms=int(static.get("log.initial.task.delay.ms", 30_000)),
            ),
            requests=RequestSettings(
                broker_id=config.node_id,
                fetch_max_bytes=config.client_fetch_max_bytes,
                session_slots=config.fetch_session_slots,
                prefers_rack_of_client=_prefers_rack(static.get("replica.selector.class")),
                inter_broker_listener=config.inter_broker_listener,
                verifies_transactions=static.get(VERIFICATION, "true").lower() != "false",
                request_timeout_ms=config.forwarding_timeout_ms,
                quota_samples=int(static.get("quota.window.num", 11)),
                quota_window_ms=int(static.get("quota.window.size.seconds", 1)) * 1000,
            ),
        ),
    )


def _prefers_rack(selector: str | None) -> bool:
    """Whether consumers read from a replica in their own rack (KIP-392)."""
    if selector not in (None, "", RACK_AWARE):
        raise ConfigError(f"replica.selector.class={selector} is not known", hint=f"Allowed: {RACK_AWARE}, or none.")
    return selector == RACK_AWARE
