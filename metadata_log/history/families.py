"""The smaller families of a cluster's metadata: features, quotas, credentials, tokens, producer ids and controllers
(Kafka: `FeaturesImage`, `ClientQuotasImage`, `ScramImage`, `DelegationTokenImage`, `ProducerIdsImage`).
"""

from __future__ import annotations

from typing import Final

from metadata_log.history.causes import CauseRow
from metadata_log.history.open_rows import OpenRows, Sink, When
from metadata_log.history.values import (
    controller_values,
    entity_text,
    feature_values,
    quota_values,
    scram_values,
    token_values,
)
from metadata_log.image.controllers import ControllersImage, replay_register_controller, replay_unregister_controller
from metadata_log.image.features import KRAFT_VERSION, METADATA_VERSION
from metadata_log.image.tokens import TokensImage, replay_token
from metadata_log.records import metadata as records

FINALIZED: Final = "feature-finalized"
UPGRADED: Final = "feature-upgraded"
DOWNGRADED: Final = "feature-downgraded"
DROPPED: Final = "feature-removed"


class Families:
    """The open rows of these histories."""

    def __init__(self, sink: Sink) -> None:
        self._features = OpenRows("feature_history", sink)
        self._quotas = OpenRows("quota_history", sink)
        self._scram = OpenRows("scram_history", sink)
        self._tokens = OpenRows("token_history", sink)
        self._producer_ids = OpenRows("producer_ids_history", sink)
        self._controllers = OpenRows("controller_history", sink)
        self._all = (
            self._features,
            self._quotas,
            self._scram,
            self._tokens,
            self._producer_ids,
            self._controllers,
        )
        self._levels: dict[str, int] = {}
        self._controllers_image = ControllersImage()

    @property
    def metadata_version(self) -> int | None:
        """The level in force, if known."""
        return self._levels.get(METADATA_VERSION)

    def on_feature(
        self, feature: str, level: int, when: When, cause: CauseRow | None, record: str, offset: int
    ) -> None:
        """A feature gets a level; 0 removes it. kraft.version comes from control records alone (KIP-853)."""
        if feature == KRAFT_VERSION and record == "FeatureLevelRecord":
            return
        old = self._levels.pop(feature, None)
        if level == 0 and feature != KRAFT_VERSION:
            self._features.end(feature, when, DROPPED)
            return
        self._levels[feature] = level
        if cause is None:
            code = FINALIZED if old is None else DOWNGRADED if level < old else UPGRADED
            text = f"{feature} was set to level {level}" + ("" if old is None else f", from {old}")
            cause = (code, record, offset, None, text)
        self._features.begin(feature, (*feature_values(feature, level), old), when, cause)

    def on_quota(self, record: records.ClientQuotaRecord, when: When, cause: CauseRow | None, offset: int) -> None:
        """Set or remove one key of an entity's quotas."""
        entity = tuple(sorted({part.entity_type: part.entity_name for part in record.entity}.items()))
        key = (entity, record.key)
        if record.remove:
            self._quotas.end(key, when, "quota-removed")
            return
        text = f"{record.key} of {entity_text(entity)} was set"
        cause = cause or ("quota-set", "ClientQuotaRecord", offset, None, text)
        self._quotas.begin(key, quota_values(entity, record.key, record.value), when, cause)

    def on_scram(
        self, record: records.UserScramCredentialRecord, when: When, cause: CauseRow | None, offset: int
    ) -> None:
        """Set a user's credential."""
        code = "credential-changed" if (record.name, record.mechanism) in self._scram else "credential-set"
        text = f"the SCRAM credential of user {record.name} was set"
        cause = cause or (code, "UserScramCredentialRecord", offset, None, text)
        values = scram_values(record.name, record.mechanism, record.iterations)
        self._scram.begin((record.name, record.mechanism), values, when, cause)

    def on_remove_scram(self, record: records.RemoveUserScramCredentialRecord, when: When) -> None:
        """Remove a user's credential."""
        self._scram.end((record.name, record.mechanism), when, "credential-removed")

    def on_token(self, record: records.DelegationTokenRecord, when: When, cause: CauseRow | None, offset: int) -> None:
        """Create or renew a token."""
        code = "token-renewed" if record.token_id in self._tokens else "token-created"
        verb = "renewed" if code == "token-renewed" else "made"
        text = f"a delegation token of {record.owner} was {verb}"
        cause = cause or (code, "DelegationTokenRecord", offset, None, text)
        token = replay_token(TokensImage(), record).by_id[record.token_id]
        self._tokens.begin(record.token_id, token_values(token), when, cause)

    def on_remove_token(self, record: records.RemoveDelegationTokenRecord, when: When) -> None:
        """Remove a token, on request or after its expiry."""
        self._tokens.end(record.token_id, when, "token-removed")

    def on_producer_ids(
        self, record: records.ProducerIdsRecord, when: When, cause: CauseRow | None, offset: int
    ) -> None:
        """Allocate a block of producer ids to a broker."""
        text = f"broker {record.broker_id} got the block of producer ids below {record.next_producer_id}"
        cause = cause or ("producer-ids-allocated", "ProducerIdsRecord", offset, record.broker_id, text)
        self._producer_ids.begin("", (record.next_producer_id,), when, cause)

    def on_controller(
        self, record: records.RegisterControllerRecord, when: When, cause: CauseRow | None, offset: int
    ) -> None:
        """Register the process of a controller."""
        known = self._controllers_image.by_id.get(record.controller_id)
        self._controllers_image = replay_register_controller(self._controllers_image, record)
        code = "controller-registered" if known is None else "controller-restarted"
        verb = "registered" if known is None else "registered as a new process"
        if known is not None and known.incarnation_id == record.incarnation_id:
            code, verb = "controller-registered-again", "registered again, with other facts about itself"
        cause = cause or (code, "RegisterControllerRecord", offset, None, f"controller {record.controller_id} {verb}")
        registration = self._controllers_image.by_id[record.controller_id]
        self._controllers.begin(record.controller_id, controller_values(registration), when, cause)

    def on_unregister_controller(self, record: records.UnregisterControllerRecord, when: When) -> None:
        """Forget a controller, on request."""
        self._controllers_image = replay_unregister_controller(self._controllers_image, record)
        self._controllers.end(record.controller_id, when, "controller-unregistered")

    def lose_sight(self, when: When) -> None:
        """End every row: the following history is unknown."""
        self._levels.clear()
        self._controllers_image = ControllersImage()
        for rows in self._all:
            rows.lose_sight(when)

    def finish(self, now: When) -> None:
        """Write the open rows."""
        for rows in self._all:
            rows.finish(now)
