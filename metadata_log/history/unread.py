"""Records of a later Kafka that a history has passed over, and the views that may lack what they changed."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from metadata_log.history.views import VIEWS
from metadata_log.records.frame import RECORD_TYPES

_COMPLETE: Final = frozenset(
    {"quorum_epochs", "controller_gaps", "controller_elections", "voter_history", "voters_state"}
)
"""Views of control records and of times alone."""
_PARTITIONS: Final = frozenset(
    {
        *("partition_history", "leader_history", "isr_history", "topic_history", "leadership_changes"),
        *("unavailability", "incidents", "isr_flaps", "unclean_elections", "reassignments", "fencing", "churn"),
        *("partitions_state", "topics_state"),
    }
)
_BY_WORD: Final = (
    ("Controller", frozenset({"controller_history", "controllers_state"})),
    ("Broker", _PARTITIONS | {"broker_history", "brokers_state"}),
    ("Config", frozenset({"config_history", "config_drift", "configs_state", "churn", "unavailability", "incidents"})),
    ("AccessControl", frozenset({"acl_history", "acl_audit", "acls_state"})),
    ("FeatureLevel", frozenset({"feature_history", "features_state"})),
    ("ClientQuota", frozenset({"quota_history", "quotas_state"})),
    ("Scram", frozenset({"scram_history", "scram_state"})),
    ("DelegationToken", frozenset({"token_history", "tokens_state"})),
    ("ProducerIds", frozenset({"producer_ids_history", "producer_ids_state"})),
    ("Topic", _PARTITIONS),
    ("Partition", _PARTITIONS),
    ("Elr", _PARTITIONS),
)
"""By a word in the name of a record type the views that its records change; the first word that fits counts."""


class Unread(Struct, frozen=True, kw_only=True):
    """The records of one type and version that this software does not know.

    Args:
        type: The number of the record type.
        version: The version of the records.
        level: The metadata.version of the cluster; None if it is not known.
        from_offset: The offset of the first of them.
        to_offset: The offset that follows the last of them.
        records: How many there are.
        views: The views that may lack what they changed.
    """

    type: int
    version: int
    level: int | None
    from_offset: int
    to_offset: int
    records: int
    views: list[str]

    def __str__(self) -> str:
        level = "of unknown metadata.version" if self.level is None else f"metadata.version {self.level}"
        of = f"record type {self.type}" + (f" in version {self.version}" if self.type in RECORD_TYPES else "")
        where = f"offset {self.from_offset}"
        if self.records > 1:
            where = f"{self.records} between offsets {self.from_offset} and {self.to_offset - 1}"
        lacking = ", ".join(self.views) if self.type in RECORD_TYPES else "all views but those of the quorum"
        return f"written by a newer Kafka ({of}, {level}); upgrade: {lacking} may lack what it changed ({where})"

    @property
    def is_known_now(self) -> bool:
        """Whether the software was upgraded since: it reads such records."""
        cls = RECORD_TYPES.get(self.type)
        return cls is not None and self.version <= cls.__schema__.versions.highest


def lacking_views(kind: int) -> frozenset[str]:
    """The views that may lack what a record of a type changed, of which the type or the version is not known."""
    cls = RECORD_TYPES.get(kind)
    if cls is not None:
        for word, views in _BY_WORD:
            if word in cls.__name__:
                return views
    return frozenset(VIEWS) - _COMPLETE - {"retention"}
