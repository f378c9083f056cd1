"""Tells the operator of nodes that are too old for the levels of the cluster: their own logs say it over and over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kraft.access.older_node import OlderNode
from kraft.controller.decision.request_context import RequestContext
from metadata_log.image import METADATA_VERSION, MetadataImage
from metadata_log.releases import KRAFT_VERSION, METADATA_CHANGES, METADATA_VERSIONS, OLDEST_LEVEL
from metadata_log.types import Uuid


def note_older_node(
    context: RequestContext, kind: str, node_id: int, incarnation: Uuid, highest: Mapping[str, int]
) -> None:
    """Note once for each incarnation that a node lacks levels of the cluster, if it does.

    Args:
        context: The context of its registration.
        kind: The role of the node, `broker` or `controller`.
        node_id: Its id.
        incarnation: Its incarnation: a restart is told again.
        highest: The highest level of each feature that the node supports.
    """
    lacking = dict(_lacking(context.image, highest))
    if lacking and context.sessions.is_first_refusal(incarnation):
        levels = [f"{name} {context.image.features.level(name)} (up to {most})" for name, most in lacking.items()]
        level = context.image.features.metadata_version or 0
        context.audited.append(OlderNode(f"{kind} {node_id}", ", ".join(levels), _remedy(level, lacking)))


def _lacking(image: MetadataImage, highest: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """The features whose level a node does not support, with the highest that it does."""
    for name, level in image.features.all_levels():
        if level > highest.get(name, 0) and name != KRAFT_VERSION:
            yield name, highest.get(name, 0)


def _remedy(level: int, lacking: Mapping[str, int]) -> str:
    most = lacking.get(METADATA_VERSION, level)
    if any(most < change <= level for change in METADATA_CHANGES):
        release = max((known, name) for name, known in METADATA_VERSIONS.items() if known <= max(most, OLDEST_LEVEL))[1]
        newer = f"metadata.version {level} cannot be lowered to {most}: start a newer release there"
        return f"{newer}, or begin a new cluster by `kraft format --release-version {release}`"
    wanted = " ".join(f"--feature {name}={highest}" for name, highest in lacking.items())
    return f"start a newer release there, or lower the levels by `kraft features downgrade {wanted}`"
