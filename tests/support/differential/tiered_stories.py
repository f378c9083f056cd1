"""What controllers are asked about topics with tiered storage: creations and changes, most of them wrong."""

from __future__ import annotations

from typing import Any, Final

from support.differential.controller_stories import (
    A,
    Step,
    arrives,
    configure,
    create,
    delete,
    latest,
    topic,
)
from transport.protocol import messages as m
from transport.protocol.messages import alter_configs

TOPIC: Final = 2
SET, DELETE, APPEND, SUBTRACT = range(4)
_TIERED: Final = "true"


def _set(name: str, **values: str | None) -> Step:
    """An incremental change; `_` stands for a point, and None deletes."""
    changes = [(key.replace("_", "."), SET if value is not None else DELETE, value) for key, value in values.items()]
    return configure(TOPIC, name, *changes)


def _replace(name: str, **values: str) -> Step:
    """AlterConfigs, which removes what it does not name."""
    configs = [alter_configs.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in values.items()]
    resource = alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=configs)
    return latest(lambda side: m.AlterConfigsRequest(resources=[resource]))


def _made(name: str, **values: str) -> Step:
    configs: dict[str, Any] = values
    return create(topic(name, [A], remote_storage_enable=_TIERED, **configs))


TIERED: Final[list[Step]] = [
    *arrives(A),
    create(topic("plain", [A])),
    _made("tiered"),
    _made("spaces", cleanup_policy=" delete "),
    create(topic("capital", [A], remote_storage_enable=" TRUE ")),
    create(topic("perhaps", [A], remote_storage_enable="perhaps")),
    create(topic("trial", [A], remote_storage_enable=_TIERED), validate_only=True),
    _made("compacted", cleanup_policy="compact"),
    _made("both", cleanup_policy="compact,delete"),
    _made("twice", cleanup_policy="delete,delete"),
    _made("endless", cleanup_policy=""),
    _made("local", local_retention_ms="1000"),
    _made("local-all", local_retention_ms="-1"),
    _made("local-endless", local_retention_ms="-1", retention_ms="-1"),
    _made("local-too-much", local_retention_ms="1001", retention_ms="1000"),
    _made("local-as-much", local_retention_ms="-2", retention_ms="1000"),
    _made("local-wrong", local_retention_ms="-3"),
    _made("bytes", local_retention_bytes="1000"),
    _made("bytes-all", local_retention_bytes="-1", retention_bytes="5000"),
    _made("bytes-more", local_retention_bytes="5001", retention_bytes="5000"),
    _made("bytes-endless", local_retention_bytes="5001", retention_bytes="-7"),
    _made("both-wrong", local_retention_bytes="9", retention_bytes="8", local_retention_ms="9", retention_ms="8"),
    _made("lag", remote_copy_lag_ms="1000", local_retention_ms="999"),
    _made("lag-whole", remote_copy_lag_ms="1000", retention_ms="999"),
    _made("lag-none", remote_copy_lag_ms="0", local_retention_ms="0"),
    _made("lag-bytes", remote_copy_lag_bytes="1000", local_retention_bytes="999"),
    _made("lag-bytes-whole", remote_copy_lag_bytes="1000", retention_bytes="999"),
    _made("lag-bytes-endless", remote_copy_lag_bytes="1000", retention_bytes="-1"),
    _made("lags", remote_copy_lag_bytes="10", retention_bytes="9", remote_copy_lag_ms="10", retention_ms="9"),
    _made("copied", remote_log_copy_disable="true"),
    _made("copied-local", remote_log_copy_disable="true", local_retention_ms="1000"),
    _made("copied-same", remote_log_copy_disable="true", local_retention_ms="1000", retention_ms="1000"),
    _made("copied-bytes", remote_log_copy_disable="true", local_retention_bytes="1000"),
    _made("copied-not", remote_log_copy_disable="maybe"),
    create(topic("plain-local", [A], local_retention_ms="2000", retention_ms="1000", remote_copy_lag_ms="9999")),
    create(topic("plain-options", [A], remote_log_copy_disable="true", remote_log_delete_on_disable="true")),
    _set("plain", remote_log_copy_disable="true"),
    _set("plain", remote_storage_enable="false"),
    _set("plain", remote_storage_enable=_TIERED, cleanup_policy="compact"),
    configure(TOPIC, "plain", ("cleanup.policy", APPEND, "compact"), ("remote.storage.enable", SET, "true")),
    configure(TOPIC, "plain", ("remote.storage.enable", APPEND, "true")),
    _set("plain", remote_storage_enable=_TIERED, remote_log_copy_disable="false"),
    configure(TOPIC, "plain", ("cleanup.policy", APPEND, "compact")),
    configure(TOPIC, "plain", ("cleanup.policy", SUBTRACT, "delete")),
    _set("plain", cleanup_policy=None),
    _set("tiered", local_retention_ms="999999999999"),
    _set("tiered", retention_ms="500", local_retention_ms="400"),
    _set("tiered", retention_ms="300"),
    _set("tiered", remote_copy_lag_ms="401"),
    _set("tiered", remote_copy_lag_ms="400"),
    _set("tiered", local_retention_ms=None),
    _set("tiered", remote_log_copy_disable="true"),
    _set("tiered", local_retention_ms="100"),
    _set("tiered", local_retention_bytes="100"),
    _set("tiered", remote_log_copy_disable=None, local_retention_ms="450"),
    _set("tiered", remote_storage_enable="false"),
    _set("tiered", remote_storage_enable=None),
    _set("tiered", remote_log_delete_on_disable="true"),
    _set("tiered", remote_storage_enable="false"),
    _set("tiered", remote_log_delete_on_disable=None),
    _set("local", remote_storage_enable="false", remote_log_delete_on_disable="false"),
    _set("local", remote_storage_enable="false", remote_log_delete_on_disable="true"),
    _set("local", remote_storage_enable="true", remote_log_delete_on_disable="x"),
    _replace("capital", retention_ms="1000"),
    _replace("bytes", retention_ms="1000"),
    _replace("bytes", remote_storage_enable=_TIERED, local_retention_ms="2000", retention_ms="1000"),
    _replace("bytes", remote_storage_enable="false", remote_log_delete_on_disable="true"),
    _set("nope", remote_storage_enable=_TIERED),
    _set("plain", remote_log_copy_enable="true"),
    delete("spaces"),
]
TIERED_OF_NODES: Final[dict[str, dict[str, str]]] = {
    "tiered storage": {"remote.log.storage.system.enable": "true"},
    "tiered storage of a node with settings": {
        "remote.log.storage.system.enable": "TRUE",
        "log.retention.minutes": "1",
        "log.retention.bytes": "4000",
        "log.local.retention.bytes": "3500",
        "log.remote.copy.lag.ms": "200",
    },
    "tiered storage of a node with policies": {
        "remote.log.storage.system.enable": "true",
        "log.cleanup.policy": "compact",
    },
    "no tiered storage": {},
}
"""Settings of a node, with each of which `TIERED` has other answers."""
