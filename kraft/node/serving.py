"""The application of a broker with data, from the configuration of its node (Kafka: `BrokerServer.startup`)."""

from __future__ import annotations

from kraft.broker.handling.settings import RequestSettings
from kraft.broker.partitions import DataSettings
from kraft.broker.partitions.settings import cleaner_settings
from kraft.config import Config
from kraft.process.parts.broker import ServingOptions, host_serving_broker
from kraft.replica.interface.application import ApplicationFactory
from metadata_log.disk import DirectoryDisk
from metadata_log.types import NEVER_MS


def node_with_data(config: Config, disk: DirectoryDisk) -> ApplicationFactory:
    """The factory of a broker with data, with the role of a controller if the configuration has both."""
    broker = broker_with_data(config, disk)
    if not config.is_controller:
        return broker
    # Loaded here, because a broker alone needs no controller.
    from kraft.process.parts.combined import host_combined

    return host_combined(broker)


def broker_with_data(config: Config, disk: DirectoryDisk) -> ApplicationFactory:
    """The factory of a broker that holds data and serves clients."""
    static = {one.name: one.value for one in config.described if one.is_set and one.value is not None}
    data = config.data
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
                has_cleaner=data.has_cleaner,
                cleaner=cleaner_settings(data.cleaner_bytes, data.cleaner_threads, data.cleaner_load_factor),
                move_bytes_per_second=data.move_bytes_per_second,
                cleaner_backoff_ms=data.cleaner_backoff_ms,
                producer_expiry_check_ms=data.producer_expiry_check_ms,
                flush_check_ms=NEVER_MS if data.flush_check_ms is None else data.flush_check_ms,
                initial_task_delay_ms=data.initial_task_delay_ms,
            ),
            requests=RequestSettings(
                broker_id=config.node_id,
                fetch_max_bytes=config.client_fetch_max_bytes,
                session_slots=config.fetch_session_slots,
                prefers_rack_of_client=data.prefers_rack_of_client,
                inter_broker_listener=config.inter_broker_listener,
                verifies_transactions=data.verifies_transactions,
                request_timeout_ms=config.forwarding_timeout_ms,
                quota_samples=data.quota_samples,
                quota_window_ms=data.quota_window_seconds * 1000,
                groups=config.groups,
                transactions=config.transactions,
            ),
        ),
    )
