"""A delegation token with an owner, and its context."""

from __future__ import annotations

from random import Random

from msgspec import structs

from kraft.access.caller import Caller
from kraft.access.tokens import TokenSettings
from kraft.config.data_settings import TopicDefaults
from kraft.config.described import Secret
from kraft.controller.decision.broker_sessions import BrokerSessions
from kraft.controller.decision.request_context import AdminSettings, RequestContext
from metadata_log.image import DelegationToken, MetadataDelta, MetadataImage
from metadata_log.image.tokens import token_record
from metadata_log.records import metadata as records
from metadata_log.types import OffsetAndEpoch

NOW_MS = 1_000_000
PERIOD_MS = 1000
"""The renewal period of the server."""
SECRET = Secret("a-secret")
OWNER, REQUESTER, RENEWER, OTHER = (Caller("User", name) for name in ("owner", "requester", "renewer", "other"))


def token_context(token: DelegationToken, caller: Caller, now_ms: int = NOW_MS) -> RequestContext:
    features = records.FeatureLevelRecord(name="metadata.version", feature_level=30)
    delta = MetadataDelta(MetadataImage())
    delta.replay(features, 0)
    delta.replay(token_record(token), 1)
    image = delta.apply(OffsetAndEpoch(epoch=1, offset=2))
    return RequestContext(
        image=image,
        committed=image,
        next_offset=2,
        version=2,
        now_ms=now_ms,
        rng=Random(0),
        cluster_id="c",
        defaults=TopicDefaults(),
        sessions=BrokerSessions(9000),
        admin=AdminSettings(tokens=TokenSettings(secret=SECRET, max_lifetime_ms=10**9, expiry_time_ms=PERIOD_MS)),
        caller=caller,
    )


def a_token(max_ms: int, expires_ms: int, **changes: object) -> DelegationToken:
    token = DelegationToken("t", "User:owner", "User:requester", ("User:renewer", "User:second"), 0, max_ms, expires_ms)
    return structs.replace(token, **changes)
