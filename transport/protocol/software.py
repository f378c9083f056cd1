"""What this software calls itself to its peers (KIP-511)."""

from __future__ import annotations

from typing import Final

from transport.protocol.messages.api_versions import ApiVersionsRequest

SOFTWARE_NAME: Final = "trio-kraft"
SOFTWARE_VERSION: Final = "0.1.0"
"""The version of this software. `pyproject.toml` reads it here: to ask for the installed one would cost a start more
than all else in a transport.
"""


def versions_request() -> ApiVersionsRequest:
    """The request for the versions and the features of a peer."""
    return ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
