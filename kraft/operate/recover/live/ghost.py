"""Registers a controller that is gone once more, so that its old feature ranges block no upgrade (KAFKA-20395).

Registrations of controllers are never removed, and Kafka has no request for that (KIP-1312 proposes one). A
ControllerRegistration request replaces one: this one has the ranges of the leader.
"""

from __future__ import annotations

from random import Random
from typing import Final

from msgspec import Struct

from kraft.admin.client import AdminClient
from kraft.admin.descriptions import QuorumDescription
from kraft.admin.errors import AdminError
from kraft.observer import read_image
from metadata_log.image import MetadataImage
from metadata_log.image.controllers import ControllerRegistration
from metadata_log.types import random_uuid
from transport.protocol.errors import Error
from transport.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)

FETCHED_MS: Final = 300_000
"""A controller that has fetched within this time runs: it registers its own ranges at its next start."""


class Ghost(Struct, frozen=True, kw_only=True):
    """A registered controller that is gone, and the controller with the ranges to register.

    `features` are the differences: the feature, and both ranges; None for a feature that one of them does not have.
    """

    registration: ControllerRegistration
    leader: ControllerRegistration
    features: tuple[tuple[str, tuple[int, int] | None, tuple[int, int] | None], ...]


async def find_ghost(admin: AdminClient, controller_id: int) -> Ghost:
    """The registration of a controller that is gone. `AdminError` if the controller is a voter, has fetched lately, or
    is not registered.
    """
    return ghost_of(await admin.describe_quorum(), await read_image(admin), controller_id)


def ghost_of(quorum: QuorumDescription, image: MetadataImage, controller_id: int) -> Ghost:
    """The same from what a leader reports; raises `AdminError`."""
    registered = image.controllers.by_id
    if any(one.id == controller_id for one in quorum.voters):
        raise AdminError(
            f"controller {controller_id} is a voter, and no ghost",
            hint="Start the controller with the present software: it registers its own ranges.",
        )
    now_ms = next((one.last_caught_up_ms for one in quorum.voters if one.id == quorum.leader_id), -1)
    for one in quorum.observers:
        if one.id == controller_id and (now_ms < 0 or now_ms - one.last_fetch_ms < FETCHED_MS):
            raise AdminError(
                f"controller {controller_id} has fetched from the leader within the last five minutes: it runs",
                hint="Restart the controller with the present software. If it was stopped just now, wait five minutes.",
            )
    if controller_id not in registered:
        there = ", ".join(str(one) for one in sorted(registered))
        raise AdminError(f"controller {controller_id} is not registered", hint=f"Registered are: {there or 'none'}.")
    if quorum.leader_id not in registered:
        raise AdminError(f"the leader, controller {quorum.leader_id}, is not registered yet", hint="Try again.")
    ghost, leader = registered[controller_id], registered[quorum.leader_id]
    old = {name: (low, high) for name, low, high in ghost.features}
    new = {name: (low, high) for name, low, high in leader.features}
    differences = tuple(
        (name, old.get(name), new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    )
    return Ghost(registration=ghost, leader=leader, features=differences)


async def register_ghost(admin: AdminClient, ghost: Ghost, rng: Random) -> None:
    """Register the controller with its own listeners, the ranges of the leader, and a new incarnation id.
    `RequestRefused` if the caller lacks CLUSTER_ACTION on the cluster.
    """
    request = ControllerRegistrationRequest(
        controller_id=ghost.registration.id,
        incarnation_id=random_uuid(rng),
        listeners=[
            Listener(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
            for one in ghost.registration.endpoints
        ],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in ghost.leader.features
        ],
    )
    await admin.ask_active(
        request, ControllerRegistrationResponse, lambda found: (Error.of(found.error_code), found.error_message)
    )
