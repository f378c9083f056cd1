"""The calls of the host of a process to its parts, besides requests, and their results."""

from __future__ import annotations

from msgspec import Struct


class Call(Struct, frozen=True, gc=False):
    """The host calls its application, which defines the types of `ask`. One `Returned` with this id follows."""

    call_id: int
    ask: Struct


class CancelCall(Struct, frozen=True, gc=False):
    """The caller has cancelled the `Call` with this id, so no `Returned` is needed."""

    call_id: int


class Returned(Struct, frozen=True, gc=False):
    """The outcome of the `Call` with this id."""

    call_id: int
    outcome: Struct


class LeaveCluster(Struct, frozen=True):
    """The `ask` of the call that begins the controlled shutdown of a broker, before the controller beside it ends."""


class Left(Struct, frozen=True):
    """The controlled shutdown of the broker is complete: the controller may resign."""
