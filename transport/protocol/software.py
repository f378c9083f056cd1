"""The name that this software gives itself to its peers (KIP-511)."""

from __future__ import annotations

from metadata_log.software import SOFTWARE_NAME, SOFTWARE_VERSION
from transport.protocol.messages.api_versions import ApiVersionsRequest


def versions_request() -> ApiVersionsRequest:
    """The request for the versions and the features of a peer."""
    return ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
