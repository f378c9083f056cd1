"""Steps of stories about administration: quotas, credentials, ACLs, tokens, features, configurations as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from metadata_log.serde import Message, encode
from metadata_log.types import Uuid
from support.differential.controller_sides import FEATURES, Side
from support.differential.controller_stories import Step, envelope, latest
from transport.protocol import messages as m
from transport.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_user_scram_credentials,
    controller_registration,
    create_acls,
    create_delegation_token,
    delete_acls,
    update_features,
)
from transport.protocol.messages.principal import DefaultPrincipalData

ANY: Final = 1
UNKNOWN_HMAC: Final = b"unknown."
SALTED: Final = b"salted" + bytes(26)
USER, CLIENT_ID, IP = "user", "client-id", "ip"


def principal(name: str, *, is_token: bool = False) -> bytes:
    """A user as brokers name it to controllers."""
    return b"\x00\x00" + encode(DefaultPrincipalData(type="User", name=name, token_authenticated=is_token), 0)


def replace(kind: int, name: str, *, twice: bool = False, validate_only: bool = False, **configs: str | None) -> Step:
    """A configuration as a whole; keys with `_` for `.`."""
    named = [alter_configs.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=named)
    resources = [resource] * (2 if twice else 1)
    return latest(lambda side: m.AlterConfigsRequest(resources=resources, validate_only=validate_only))


def quotas(
    entity: dict[str, str | None], changes: dict[str, float | None], *, twice: bool = False, validate_only: bool = False
) -> Step:
    """Set the quotas of an entity; None removes one."""
    entry = alter_client_quotas.AlterClientQuotasRequestEntryData(
        entity=[
            alter_client_quotas.AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name)
            for kind, name in entity.items()
        ],
        ops=[
            alter_client_quotas.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in changes.items()
        ],
    )
    entries = [entry] * (2 if twice else 1)
    return latest(lambda side: m.AlterClientQuotasRequest(entries=entries, validate_only=validate_only))


def credentials(*, put: Sequence[tuple[str, int, int]] = (), drop: Sequence[tuple[str, int]] = ()) -> Step:
    """Store SCRAM credentials (user, mechanism, iterations), and remove others (user, mechanism)."""
    request = m.AlterUserScramCredentialsRequest(
        deletions=[
            alter_user_scram_credentials.ScramCredentialDeletion(name=user, mechanism=mechanism)
            for user, mechanism in drop
        ],
        upsertions=[
            alter_user_scram_credentials.ScramCredentialUpsertion(
                name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=SALTED
            )
            for user, mechanism, iterations in put
        ],
    )
    return latest(lambda side: request)


def allow(*names: str, **changes: Any) -> Step:
    """Let a principal read these topics, or what `changes` say."""
    usual: dict[str, Any] = {
        "resource_type": 2,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    creations = [create_acls.AclCreation(resource_name=name, **(usual | changes)) for name in names]
    return latest(lambda side: m.CreateAclsRequest(creations=creations))


def disallow(*names: str | None, **changes: Any) -> Step:
    """Remove the entries for resources of these names; None for all."""
    usual = {
        "resource_type_filter": ANY,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    filters = [delete_acls.DeleteAclsFilter(resource_name_filter=name, **(usual | changes)) for name in names]
    return latest(lambda side: m.DeleteAclsRequest(filters=filters))


def token(*renewers: tuple[str, str], lifetime_ms: int = -1, owner: str | None = None) -> Step:
    """Ask for a token; that works only through a broker, in an envelope."""
    request = m.CreateDelegationTokenRequest(
        owner_principal_type="" if owner is None else "User",
        owner_principal_name=owner or "",
        renewers=[
            create_delegation_token.CreatableRenewers(principal_type=kind, principal_name=name)
            for kind, name in renewers
        ],
        max_lifetime_ms=lifetime_ms,
    )
    return latest(lambda side: request)


def _hmac(side: Side, number: int | None) -> bytes:
    return UNKNOWN_HMAC if number is None else side.tokens[number]


def renew(number: int | None, period_ms: int) -> Step:
    """Renew the token of this number, or an unknown token."""
    return latest(lambda side: m.RenewDelegationTokenRequest(hmac=_hmac(side, number), renew_period_ms=period_ms))


def expire(number: int | None, period_ms: int) -> Step:
    """Expire the token of this number, or an unknown token."""
    return latest(
        lambda side: m.ExpireDelegationTokenRequest(hmac=_hmac(side, number), expiry_time_period_ms=period_ms)
    )


def by(name: str, step: Step, *, is_token: bool = False) -> Step:
    """A request of a user, passed on by a broker."""
    return envelope(step, principal=principal(name, is_token=is_token))


def levels(*updates: tuple[str, int, int], validate_only: bool = False) -> Step:
    """Change the levels of features (name, level, type of the upgrade)."""
    named = [
        update_features.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        for name, level, kind in updates
    ]
    return latest(lambda side: m.UpdateFeaturesRequest(feature_updates=named, validate_only=validate_only))


def controller_arrives(node: int, incarnation: Uuid, **changes: tuple[int, int] | None) -> Step:
    """A controller makes itself known; features with `_` for `.`, None for one that it does not have."""
    ranges = FEATURES | {name.replace("_", "."): range_ for name, range_ in changes.items()}

    def build(side: Side) -> Message:
        return m.ControllerRegistrationRequest(
            controller_id=node,
            incarnation_id=incarnation,
            listeners=[controller_registration.Listener(name="CONTROLLER", host="127.0.0.1", port=9000 + node)],
            features=[
                controller_registration.Feature(
                    name=name, min_supported_version=range_[0], max_supported_version=range_[1]
                )
                for name, range_ in ranges.items()
                if range_ is not None
            ],
        )

    return latest(build)
