"""The answer to ApiVersions: APIs, versions, features (Kafka: `ApiVersionManager`; KIP-511)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from kraft.quorum.values import OWN_KRAFT_VERSIONS
from metadata_log.image.features import KRAFT_VERSION
from metadata_log.serde import Message, Versions
from transport.protocol.apis import APIS, ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from transport.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from transport.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from transport.protocol.sasl.server import ILLEGAL_AUTHENTICATE, is_sound

QUORUM_APIS: Final = (
    ApiKey.FETCH,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
)
"""The APIs that each replica answers, except a broker's."""
KEYS_OF_QUORUM: Final = frozenset(map(int, QUORUM_APIS))
"""The same, to look up the API of each request."""
_LOGIN_APIS: Final = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
_OWN_KRAFT_VERSIONS: Final = (KRAFT_VERSION, OWN_KRAFT_VERSIONS.lowest, OWN_KRAFT_VERSIONS.highest)
_ZERO_MINIMUM_SINCE: Final = 4
"""Clients below this version of the API reject a feature with minimum level 0 as malformed."""


class Served(Protocol):
    """A part that serves APIs, as ApiVersions shows it."""

    @property
    def apis(self) -> frozenset[ApiKey]:
        """The APIs that the part answers, besides those of the quorum."""

    def finalized_features(self) -> tuple[tuple[tuple[str, int], ...], int]:
        """The finalized feature levels by name, and the offset at which they are known; -1 if there are none."""

    def supported_features(self) -> tuple[tuple[str, int, int], ...]:
        """Features with their lowest and highest level, by name."""


def served_apis(part: Served | None) -> tuple[ApiKey, ...]:
    """The APIs at the listeners of a part, in order of their keys; None for a raw log.

    Other brokers fetch from a broker, and no voter requests its vote: all other listeners have the quorum's APIs, too.
    """
    own = frozenset[ApiKey]() if part is None else part.apis
    quorum = () if ApiKey.FETCH in own else QUORUM_APIS
    return tuple(sorted({*quorum, ApiKey.API_VERSIONS, ApiKey.DESCRIBE_CLUSTER, *_LOGIN_APIS, *own}))


def _offered(keys: tuple[ApiKey, ...]) -> Iterator[tuple[ApiKey, Versions]]:
    """The served APIs with their versions."""
    if all(key in APIS for key in keys):
        yield from ((key, APIS[key].versions) for key in keys)
        return
    # Loaded here, because a controller needs none of the brokers' messages.
    from transport.protocol.broker_listener import advertised

    yield from ((key, advertised(key)) for key in keys)


def refuse_login(message: Message) -> Message | None:
    """The answer to a login where none is due, as on a listener without login; None for any other request.

    Kafka announces the APIs of logins on every listener.
    """
    match message:
        case SaslHandshakeRequest():
            return SaslHandshakeResponse(error_code=Error.ILLEGAL_SASL_STATE)
        case SaslAuthenticateRequest():
            return SaslAuthenticateResponse(error_code=Error.ILLEGAL_SASL_STATE, error_message=ILLEGAL_AUTHENTICATE)
        case _:
            return None


def describe_versions(
    part: Served | None,
    request: ApiVersionsRequest,
    version: int,
    kraft_version: int,
    broker: tuple[str, int] | None = None,
) -> ApiVersionsResponse:
    """The answer to an ApiVersions request of this version, at the listeners of a part.

    The quorum knows the level of kraft.version. `broker` is the cluster and the id of a broker, which tells a client so
    that looks for another one (KIP-1242).
    """
    if not is_sound(request, version):
        return ApiVersionsResponse(error_code=Error.INVALID_REQUEST)
    if broker is not None and request.cluster_id is not None and (request.cluster_id, request.node_id) != broker:
        return ApiVersionsResponse(error_code=Error.REBOOTSTRAP_REQUIRED)
    levels, offset = ((), -1) if part is None else part.finalized_features()
    supported = () if part is None else part.supported_features()
    if kraft_version > 0:
        levels = tuple(sorted((*levels, (KRAFT_VERSION, kraft_version))))
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=versions.lowest, max_version=versions.highest)
            for key, versions in _offered(served_apis(part))
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, lowest, highest in sorted(dict.fromkeys((*supported, _OWN_KRAFT_VERSIONS)))
            if lowest > 0 or version >= _ZERO_MINIMUM_SINCE
        ],
        finalized_features_epoch=offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level) for name, level in levels
        ],
    )
