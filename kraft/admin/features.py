"""Describes and updates feature levels (Kafka: `Admin.describeFeatures`, `updateFeatures`; KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from msgspec import Struct

from kraft.admin.client import AdminClient, Refusal
from transport.protocol.errors import Error
from transport.protocol.messages.api_versions import ApiVersionsResponse
from transport.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from transport.protocol.software import versions_request


class UpgradeType(IntEnum):
    """The permitted direction of a change (Kafka: `FeatureUpdate.UpgradeType`)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class Feature(Struct, frozen=True):
    """One feature of the cluster (Kafka: `SupportedVersionRange`, `FinalizedVersionRange`)."""

    name: str
    lowest: int
    """The lowest level that the active controller supports; 0 for a feature that the controller does not know."""
    highest: int
    """The highest level that the active controller supports."""
    finalized: int
    """The level of the cluster; 0 for none."""


class Features(Struct, frozen=True):
    """All features of the cluster (Kafka: `FeatureMetadata`)."""

    features: tuple[Feature, ...]
    """The features, ordered by name."""
    epoch: int
    """The epoch of the finalized levels: the offset of their last change."""


async def describe_features(admin: AdminClient) -> Features:
    """The features as the active controller reports them (Kafka: `Admin.describeFeatures`, KIP-584).

    Args:
        admin: The client.

    Raises:
        RequestRefused: The controller refused the request.
        NoController: No controller answered in time.
    """
    answer = await admin.ask_active(versions_request(), ApiVersionsResponse, _describe_refusal)
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    return Features(
        tuple(
            Feature(name, *supported.get(name, (0, 0)), finalized.get(name, 0))
            for name in sorted(supported.keys() | finalized.keys())
        ),
        answer.finalized_features_epoch,
    )


async def update_features(
    admin: AdminClient, levels: Mapping[str, int], upgrade_type: UpgradeType, *, validate_only: bool = False
) -> None:
    """Finalize levels of features, all or none (Kafka: `Admin.updateFeatures`, KIP-584, KIP-1022).

    Args:
        admin: The client.
        levels: The level of each feature; 0 removes a feature.
        upgrade_type: The permitted direction of the changes.
        validate_only: Whether the controller only checks the levels.

    Raises:
        RequestRefused: A level cannot be set; the message names the first such feature.
        NoController: No controller answered in time.
    """
    updates = [
        FeatureUpdateKey(
            feature=name,
            max_version_level=level,
            upgrade_type=upgrade_type,
        )
        for name, level in levels.items()
    ]
    request = UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)
    await admin.ask_active(request, UpdateFeaturesResponse, _update_refusal)


def _describe_refusal(answer: ApiVersionsResponse) -> Refusal:
    return Error.of(answer.error_code), None


def _update_refusal(answer: UpdateFeaturesResponse) -> Refusal:
    """Up to version 1, a response may have an error for each feature."""
    if answer.error_code:
        return Error.of(answer.error_code), answer.error_message
    refused = next((each for each in answer.results if each.error_code), None)
    if refused is None:
        return Error.NONE, None
    return Error.of(refused.error_code), f"{refused.feature}: {refused.error_message}"
