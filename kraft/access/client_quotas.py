"""The quota that holds for a client: the most specific one, and who shares its count (Kafka: `DefaultQuotaCallback`;
KIP-55, KIP-546).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from msgspec import Struct

from kraft.limits import QUOTA_RATES
from metadata_log.image.quotas import CLIENT_ID, NO_QUOTAS, USER, Entity, QuotasImage

LONGEST: Final = 64
"""The longest name in a key; a longer one, which clients choose freely, is there by its digest."""
LimitKey = tuple[str, str, str]
"""A quota's name with the user and the client id that share the count; either is empty if it makes no difference."""


class Limit(Struct, frozen=True):
    """The quota of a client, and the clients with which the client shares the count."""

    key: LimitKey
    bound: float


class QuotaLimits:
    """The quotas of the last image, by client."""

    def __init__(self) -> None:
        self.quotas = QuotasImage()
        """The quotas of the last image."""
        self._limits: dict[LimitKey, Limit | None] = {}
        """The quotas of clients that have asked since the quotas changed."""

    def use(self, quotas: QuotasImage) -> None:
        """Take these quotas from now on."""
        if quotas is not self.quotas:
            self.quotas = quotas
            self._limits.clear()

    def of(self, name: str, user: str, client: str) -> Limit | None:
        """The quota of a client.

        Args:
            name: The quota, such as `producer_byte_rate`.
            user: The name of the principal.
            client: The client id; empty for none.

        Returns:
            The limit, or None without a quota.
        """
        if not self.quotas.by_entity:
            return None
        key = name, _short(user), _short(client)
        if key not in self._limits:
            if len(self._limits) >= QUOTA_RATES:
                self._limits.clear()
            self._limits[key] = self._find(name, user, client)
        return self._limits[key]

    def _find(self, name: str, user: str, client: str) -> Limit | None:
        """The most specific quota and its key, which all clients share that have it."""
        by_user, by_client = _short(user), _short(client)
        both, of_user, of_client = (name, by_user, by_client), (name, by_user, ""), (name, "", by_client)
        tried: tuple[tuple[Entity, LimitKey], ...] = (
            (((CLIENT_ID, client), (USER, user)), both),
            (((CLIENT_ID, None), (USER, user)), both),
            (((USER, user),), of_user),
            (((CLIENT_ID, client), (USER, None)), both),
            (((CLIENT_ID, None), (USER, None)), both),
            (((USER, None),), of_user),
            (((CLIENT_ID, client),), of_client),
            (((CLIENT_ID, None),), of_client),
        )
        for entity, key in tried:
            bound = self.quotas.by_entity.get(entity, NO_QUOTAS).get(name)
            if bound is not None and bound > 0:
                return Limit(key, bound)
        return None


def _short(name: str) -> str:
    """A name as a key that takes little memory, and that no other name has."""
    if len(name) <= LONGEST:
        return name
    return "\0" + blake2b(name.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()
