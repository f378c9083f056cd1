"""The data from which a read is answered."""

from __future__ import annotations

from msgspec import Struct

from kraft.config.described import DescribedSetting
from metadata_log.image import MetadataImage


class Reading(Struct, frozen=True):
    """The committed metadata, and what the node that answers adds of its own: its id and its configuration.

    `version` is the version of the request. Without an authorizer there are no ACLs to describe.
    """

    image: MetadataImage
    version: int
    node_id: int
    own_settings: tuple[DescribedSetting, ...] = ()
    has_authorizer: bool = True
