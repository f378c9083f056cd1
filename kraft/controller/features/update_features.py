"""Updates feature levels (Kafka: `FeatureControlManager.updateFeatures`; KIP-584, KIP-778)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kraft.access.errors import ApiError
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import ControllerResult
from kraft.controller.decision.topic_configs import MIN_ISR
from kraft.controller.features.controller_registration import REGISTRATION_SINCE
from kraft.replica.interface.actions import QuorumLevel
from kraft.supported_features import ELIGIBLE_LEADER_REPLICAS, SUPPORTED_FEATURES
from metadata_log.image import METADATA_VERSION, ResourceType
from metadata_log.image.features import KRAFT_VERSION
from metadata_log.image.persistent_map import in_key_order
from metadata_log.records.frame import VersionedRecord
from metadata_log.records.metadata import ConfigRecord, FeatureLevelRecord, NoOpRecord
from metadata_log.releases import METADATA_CHANGES
from metadata_log.serde import Message
from transport.protocol.errors import Error
from transport.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3
RESULTS_UNTIL: Final = 1
"""The last version with each feature in the response."""
DEPENDENCIES: Final = {(ELIGIBLE_LEADER_REPLICAS, 1): (METADATA_VERSION, 23)}
"""The dependency of a feature level on another feature."""
SUPPORTED_LEVELS: Final = {name: (lowest, highest) for name, lowest, highest in SUPPORTED_FEATURES}
Range = tuple[int, int]


def update_features(context: RequestContext, request: UpdateFeaturesRequest) -> ControllerResult:
    """Change all levels, or none: raises `ApiError` for the first invalid one. The last update of each feature
    counts."""
    wanted = {update.feature: update for update in request.feature_updates}
    levels = dict(context.image.features.all_levels())
    levels |= {name: update.max_version_level for name, update in wanted.items()}
    records: list[Message] = []
    for update in wanted.values():
        try:
            records += _update(context, update, levels)
        except ApiError as refused:
            text = f"The update failed for all features since the following feature had an error: {refused.text}"
            raise ApiError(refused.error, text) from refused
    if any(_enables_elr(record) for record in records):
        records = [*_same_everywhere(context), *records]
    results = [UpdatableFeatureResult(feature=name, error_message=Error.NONE.name) for name in wanted]
    response = UpdateFeaturesResponse(error_message=None, results=results if context.version <= RESULTS_UNTIL else [])
    written = () if request.validate_only else tuple(VersionedRecord(record) for record in records)
    raised = wanted.get(KRAFT_VERSION)
    quorum_level = None if raised is None else QuorumLevel(raised.max_version_level, request.validate_only)
    return ControllerResult(written, response, quorum_level=quorum_level)


def _enables_elr(record: Message) -> bool:
    return (
        isinstance(record, FeatureLevelRecord) and record.name == ELIGIBLE_LEADER_REPLICAS and record.feature_level > 0
    )


def _same_everywhere(context: RequestContext) -> Iterator[ConfigRecord]:
    """While ELR is enabled, min.insync.replicas has to be the same on each broker."""
    configs = context.image.configs
    if MIN_ISR not in configs.of((ResourceType.BROKER, "")):
        yield ConfigRecord(
            resource_type=ResourceType.BROKER, resource_name="", name=MIN_ISR, value=str(context.defaults.min_isr)
        )
    for (kind, name), values in in_key_order(configs.by_resource):
        if kind == ResourceType.BROKER and name and MIN_ISR in values:
            yield ConfigRecord(resource_type=kind, resource_name=name, name=MIN_ISR, value=None)


def _update(context: RequestContext, update: FeatureUpdateKey, levels: Mapping[str, int]) -> list[Message]:
    """The record for one feature, checked in Kafka's order; `levels` are the target levels of all updates together."""
    name, level, image = update.feature, update.max_version_level, context.image
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _invalid(update, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _invalid(update, "A feature version cannot be less than 0.")
    for why in _obstacles(context, name, level):
        raise _invalid(update, why)
    now = image.features.level(name)
    if level < now and update.upgrade_type == UPGRADE:
        why = "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
        raise _invalid(update, f"{why} downgrade.")
    if level > now and update.upgrade_type != UPGRADE:
        raise _invalid(update, "Can't downgrade to a newer version.")
    if name == METADATA_VERSION:
        if level < now:
            _check_downgrade(now, level, is_unsafe=update.upgrade_type == UNSAFE_DOWNGRADE)
    elif name == KRAFT_VERSION:
        # Kafka changes this level in another part of the log, and writes a record here only to wait for its commit.
        return [NoOpRecord()] if update.upgrade_type == UPGRADE else []
    elif name not in SUPPORTED_LEVELS:
        raise _invalid(update, f"Feature {name} not found.")
    needed = DEPENDENCIES.get((name, level))
    if needed is not None and levels.get(needed[0], 0) < needed[1]:
        why = f"{name} could not be set to {level} because it depends on {needed[0]} level {needed[1]}"
        raise _invalid(update, why)
    return [FeatureLevelRecord(name=name, feature_level=level)]


def _check_downgrade(now: int, level: int, *, is_unsafe: bool) -> None:
    if not any(level < changed <= now for changed in METADATA_CHANGES):
        return
    why = "Refusing to perform the requested downgrade because it might delete metadata information."
    if is_unsafe:
        why = "Unsafe metadata downgrade is not supported in this version."
    text = f"Unsupported metadata.version downgrade from {now} to {level}. {why}"
    raise ApiError(Error.INVALID_UPDATE_VERSION, text)


def _obstacles(context: RequestContext, name: str, level: int) -> Iterator[str]:
    """Each node that does not support a feature at a level, fenced brokers included."""
    node_id, image = context.defaults.node_id, context.image
    yield from _obstacle(f"Local controller {node_id}", level, SUPPORTED_LEVELS.get(name))
    for broker_id, broker in in_key_order(image.brokers.by_id):
        yield from _obstacle(f"Broker {broker_id}", level, _range_of(name, broker.features))
    if (image.features.metadata_version or 0) < REGISTRATION_SINCE:
        return
    for controller_id, controller in in_key_order(image.controllers.by_id):
        if controller_id != node_id:
            yield from _obstacle(f"Controller {controller_id}", level, _range_of(name, controller.features))
    for voter in context.voters:
        if voter != node_id and voter not in image.controllers.by_id:
            yield f"controller {voter} has not registered, and may not support this feature"


def _range_of(name: str, features: tuple[tuple[str, int, int], ...]) -> Range | None:
    return next(((lowest, highest) for known, lowest, highest in features if known == name), None)


def _obstacle(node: str, level: int, levels: Range | None) -> Iterator[str]:
    lowest, highest = levels or (0, 0)
    if lowest <= level <= highest:
        return
    yield f"{node} only supports versions {lowest}-{highest}" if highest else f"{node} does not support this feature."


def _invalid(update: FeatureUpdateKey, why: str) -> ApiError:
    text = f"Invalid update version {update.max_version_level} for feature {update.feature}. {why}"
    return ApiError(Error.INVALID_UPDATE_VERSION, text)
