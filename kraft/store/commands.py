"""The commands in the log of a store, and their results.

MessagePack, arrays with a tag in front. Every node must read the same from it: the meaning of a tag never changes, and
new fields come at the end, with defaults.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from kraft.limits import (
    KEY_BYTES,
    KEYS_CLEARED_AT_ONCE,
    LONGEST_LEASE_MS,
    SHORTEST_LEASE_MS,
    TRANSACTION_BYTES,
    TRANSACTION_OPERATIONS,
)

NO_LEASE: Final = 0


class Entry(Struct, frozen=True, array_like=True):
    """A key with its value. Versions are revisions: numbers that the store gives to its changes, each higher."""

    key: str
    value: bytes
    version: int
    """The revision of the last change of the key."""
    created: int
    """The revision that created the key; a later creation of the same key has a higher number (a fencing token)."""
    lease: int = NO_LEASE
    """The lease that the key ends with; 0 if there is none."""


class Event(Struct, frozen=True, array_like=True):
    """A change of one key. All changes of one transaction have the same revision."""

    revision: int
    key: str
    value: bytes | None
    """The new value; None if the key was deleted, or ended with its lease."""


# What a transaction does.


class Put(Struct, frozen=True, array_like=True, tag=0):
    """Set the value of a key. With a lease the key ends when the lease ends; without one a former lease is left."""

    key: str
    value: bytes
    lease: int = NO_LEASE


class Delete(Struct, frozen=True, array_like=True, tag=1):
    """Delete a key, if it exists."""

    key: str


class Clear(Struct, frozen=True, array_like=True, tag=2):
    """Delete the first keys with this prefix, at most so many."""

    prefix: str
    most: int = KEYS_CLEARED_AT_ONCE


class Append(Struct, frozen=True, array_like=True, tag=3):
    """Create a key after all keys that were appended to this prefix: the prefix and the revision, in twenty digits."""

    prefix: str
    value: bytes
    lease: int = NO_LEASE


Operation = Put | Delete | Clear | Append

# What a transaction requires.


class IfVersion(Struct, frozen=True, array_like=True, tag=0):
    """The last change of the key was this revision; 0 if the key must not exist."""

    key: str
    version: int


class IfValue(Struct, frozen=True, array_like=True, tag=1):
    """The key has this value."""

    key: str
    value: bytes


Condition = IfVersion | IfValue

# The commands.


class Transaction(Struct, frozen=True, array_like=True, tag=0):
    """Carry out all operations, in order, if all conditions hold; otherwise none."""

    operations: tuple[Operation, ...]
    conditions: tuple[Condition, ...] = ()


class Grant(Struct, frozen=True, array_like=True, tag=1):
    """Begin a lease that lives for so long after its last renewal."""

    ttl_ms: int


class Renew(Struct, frozen=True, array_like=True, tag=2):
    """Begin the time of a lease anew."""

    lease: int


class Revoke(Struct, frozen=True, array_like=True, tag=3):
    """End a lease, with its keys."""

    lease: int


class Pass(Struct, frozen=True, array_like=True, tag=4):
    """Let time pass: the leader appends this, so that leases end though nobody writes."""


Command = Transaction | Grant | Renew | Revoke | Pass

# What comes of a command.


class Done(Struct, frozen=True, array_like=True, tag=0):
    """The command was carried out."""

    revision: int
    """The revision of the store after the command."""
    found: int = 0
    """How many of the keys that were to be deleted existed."""


class Mismatch(Struct, frozen=True, array_like=True, tag=1):
    """A condition did not hold, so that nothing was changed."""

    key: str
    entry: Entry | None
    """The key as it was found; None if it does not exist."""


class Granted(Struct, frozen=True, array_like=True, tag=2):
    """The lease has begun. Its number is a revision, and so a fencing token: a later lease has a higher one."""

    lease: int


class LeaseEnded(Struct, frozen=True, array_like=True, tag=3):
    """There is no such lease any more; nothing was changed."""

    lease: int


class Unfit(Struct, frozen=True, array_like=True, tag=4):
    """The command exceeds a limit; nothing was changed."""

    why: str


Result = Done | Mismatch | Granted | LeaseEnded | Unfit


def check_key(key: object) -> None:
    """Refuse a key that is no text, which no key in the store equals. Raises `TypeError`."""
    if not isinstance(key, str):
        raise TypeError(f"a key is text, and not {key!r}")


def check_types(operations: tuple[Operation, ...], conditions: tuple[Condition, ...]) -> None:
    """Refuse what no node could read: callers without a type checker give values of any type. Raises `TypeError`."""
    for one in operations:
        if not isinstance(one, Operation):
            raise TypeError(f"a transaction takes Put, Delete, Clear and Append of kraft.store, and not {one!r}")
    for condition in conditions:
        if not isinstance(condition, Condition):
            raise TypeError(f"a condition is an IfVersion or IfValue of kraft.store, and not {condition!r}")
    for part in (*operations, *conditions):
        check_key(part.prefix if isinstance(part, Clear | Append) else part.key)
        if isinstance(part, Put | Append | IfValue):
            check_value(part.value)


def check_value(value: object) -> None:
    """Refuse a value that is no bytes. Raises `TypeError`."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"a value is bytes, and not {value!r:.40}: encode it")


def fault_in_life(seconds: float) -> str | None:
    """The fault of a lease that would live for so long, which may be no number at all."""
    if SHORTEST_LEASE_MS <= seconds * 1000 <= LONGEST_LEASE_MS:
        return None
    return f"a lease lives for {SHORTEST_LEASE_MS // 1000} to {LONGEST_LEASE_MS // 1000} seconds, not for {seconds}"


def fault_in(command: Command) -> str | None:
    """The fault that a command has in any state of the store; None if it is sound."""
    match command:
        case Transaction(operations=operations, conditions=conditions):
            return _fault_in_transaction(operations, conditions)
        case Grant(ttl_ms=ttl_ms) if not SHORTEST_LEASE_MS <= ttl_ms <= LONGEST_LEASE_MS:
            return f"a lease lives for {SHORTEST_LEASE_MS} to {LONGEST_LEASE_MS} ms, and not for {ttl_ms}"
    return None


def _fault_in_transaction(operations: tuple[Operation, ...], conditions: tuple[Condition, ...]) -> str | None:
    if not operations:
        return "a transaction has at least one operation"
    if len(operations) + len(conditions) > TRANSACTION_OPERATIONS:
        return f"a transaction has at most {TRANSACTION_OPERATIONS} operations and conditions"
    names = [_name_of(one) for one in operations]
    if len(set(names)) < len(names):
        return "a transaction changes no key twice"
    keys = [one for _, one in names] + [one.key for one in conditions]
    for key in keys:
        if len(key.encode()) > KEY_BYTES:
            return f"a key has at most {KEY_BYTES} bytes in UTF-8, and {key[:40]!r}… has more"
    if not all(key for (kind, key) in names if kind is Put) or not all(one.key for one in conditions):
        return "a key has at least one character"
    size = sum(len(one.value) for one in (*operations, *conditions) if isinstance(one, Put | Append | IfValue))
    if size > TRANSACTION_BYTES:
        return f"the values of a transaction have at most {TRANSACTION_BYTES} bytes in all, and these have {size}"
    cleared = [one.most for one in operations if isinstance(one, Clear)]
    if any(most < 1 for most in cleared) or sum(cleared) > KEYS_CLEARED_AT_ONCE:
        return f"a transaction clears at most {KEYS_CLEARED_AT_ONCE} keys: `Store.clear` takes several"
    return None


def _name_of(operation: Operation) -> tuple[type[Any], str]:
    """The key or prefix that an operation changes: no two operations of a transaction may have the same."""
    match operation:
        case Put(key=key) | Delete(key=key):
            return Put, key
        case Clear(prefix=prefix) | Append(prefix=prefix):
            return type(operation), prefix
