"""The names of codes in records: access rules, SCRAM mechanisms, protocols, recovery (Kafka: its enums); and the text
form of listeners.
"""

from __future__ import annotations

from typing import Final

SECURITY_PROTOCOLS: Final = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
LEADER_RECOVERY_STATES: Final = {0: "RECOVERED", 1: "RECOVERING"}
RESOURCE_TYPES: Final = (
    "UNKNOWN",
    "ANY",
    "TOPIC",
    "GROUP",
    "CLUSTER",
    "TRANSACTIONAL_ID",
    "DELEGATION_TOKEN",
    "USER",
)
PATTERN_TYPES: Final = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
OPERATIONS: Final = (
    "UNKNOWN",
    "ANY",
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "CREATE_TOKENS",
    "DESCRIBE_TOKENS",
    "TWO_PHASE_COMMIT",
)
PERMISSION_TYPES: Final = ("UNKNOWN", "ANY", "DENY", "ALLOW")
SCRAM_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


def listener_text(name: str, host: str, port: int) -> str:
    """`CONTROLLER://127.0.0.1:9093`; brackets enclose an IPv6 host (Kafka: `Utils.formatAddress`)."""
    return f"{name}://[{host}]:{port}" if ":" in host else f"{name}://{host}:{port}"
