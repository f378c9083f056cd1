"""The subscriptions of a cluster, and what they ask of one client (Kafka: `ClientMetricsManager.SubscriptionInfo`,
`ClientMetricsInstanceMetadata`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct

from kraft.handling.orders import in_slot_order
from kraft.handling.patterns import InvalidPattern, Pattern
from kraft.handling.steps import Handling, long_step
from kraft.limits import (
    ITEMS_PER_STEP,
    TELEMETRY_MATCH_PER_STEP,
    TELEMETRY_PATTERN_WEIGHT,
    TELEMETRY_SUBSCRIPTIONS,
    TELEMETRY_WEIGHT_PER_STEP,
)
from metadata_log.crc32c import value as crc32c
from metadata_log.image import MetadataImage, ResourceType
from metadata_log.image.configs import ConfigsImage
from metadata_log.java_text import whole_number
from metadata_log.types import Uuid

ALL: Final = "*"
DEFAULT_INTERVAL_MS: Final = 300_000
_METRICS: Final = "metrics"
_INTERVAL_MS: Final = "interval.ms"
_MATCH: Final = "match"


class Client(Struct, frozen=True):
    """The values that patterns are matched with; a value that a client does not give matches none."""

    client_instance_id: str
    client_id: str | None
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class Subscription(Struct, frozen=True):
    """One resource of the type `client-metrics`."""

    name: str
    metrics: tuple[str, ...]
    interval_ms: int
    match: tuple[tuple[str, Pattern], ...]

    def fits(self, client: Client) -> Handling[bool]:
        """Whether all patterns match, each the whole of its value, in steps."""
        for key, pattern in self.match:
            value: str | None = getattr(client, key)
            if value is None:
                return False
            yield from long_step(1 + pattern.steps(value) // TELEMETRY_MATCH_PER_STEP)
            try:
                if not pattern.matches(value):
                    return False
            except InvalidPattern:
                return False
        return True


class Wanted(Struct, frozen=True):
    """The wishes for one client: prefixes of names, in the order of Kafka's answer, and how often."""

    metrics: tuple[str, ...] = ()
    interval_ms: int = DEFAULT_INTERVAL_MS

    def subscription_id(self, client_instance_id: Uuid) -> int:
        """The id that the client repeats with each push (`ClientMetricsManager.computeSubscriptionId`)."""
        text = f"[{', '.join(self.metrics)}]{self.interval_ms}".encode(errors="replace")
        high, low = (int.from_bytes(half, "big") for half in (client_instance_id[:8], client_instance_id[8:]))
        mixed = high ^ low
        value: int = crc32c(text) ^ (mixed >> 32) ^ (mixed & 0xFFFF_FFFF)
        return value - (1 << 32) if value >= 1 << 31 else value


NOTHING: Final = Wanted()


class Subscriptions:
    """The subscriptions of the metadata. `version` rises with each change: what clients were told is looked at again.

    Args:
        report: Takes a finding for the log of the node.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self.version = 0
        self._report = report
        self._configs: ConfigsImage | None = None
        self._sources: dict[str, Mapping[str, str]] = {}
        self._all: tuple[Subscription, ...] = ()
        self._wanted: dict[tuple[int, ...], Wanted] = {}

    def using(self, image: MetadataImage) -> Handling[None]:
        """Read the subscriptions of an image, in steps; nothing if they are those of before."""
        configs = image.configs
        if configs is self._configs:
            return
        sources: dict[str, Mapping[str, str]] = {}
        for number, ((kind, name), values) in enumerate(configs.by_resource.items()):
            if kind == ResourceType.CLIENT_METRICS:
                sources[name] = values
            if number % ITEMS_PER_STEP == 0:
                yield None
        if sources == self._sources:
            self._configs = configs
            return
        found, weight = [], 0
        for name in in_slot_order(sorted(sources))[:TELEMETRY_SUBSCRIPTIONS]:
            subscription = yield from self._read(name, sources[name])
            yield None
            if subscription is not None:
                weight += sum(pattern.weight for _, pattern in subscription.match)
                if weight <= TELEMETRY_PATTERN_WEIGHT:
                    found.append(subscription)
                else:
                    self._report(f"the subscription {name!r} of client metrics is not used: the patterns are too many")
        if len(sources) > TELEMETRY_SUBSCRIPTIONS:
            self._report(f"of {len(sources)} subscriptions of client metrics only {TELEMETRY_SUBSCRIPTIONS} are used")
        # From here on in one piece: several requests may have come this far.
        self._configs, self._sources, self._all = configs, sources, tuple(found)
        self._wanted.clear()
        self.version += 1

    def _read(self, name: str, values: Mapping[str, str]) -> Handling[Subscription | None]:
        match: dict[str, Pattern] = {}
        for entry in _elements(values.get(_MATCH, "")):
            key, _, text = entry.partition("=")
            try:
                # Of two patterns for one value the last one counts.
                pattern = match[key.strip()] = Pattern(text.rstrip("=").strip())
            except InvalidPattern as bad:
                # Java knows some expressions that RE2 does not, as look-ahead; the controller takes them.
                self._report(f"the subscription {name!r} of client metrics matches no client: {bad}")
                return None
            yield from long_step(1 + pattern.weight // TELEMETRY_WEIGHT_PER_STEP)
        metrics = tuple(_elements(values.get(_METRICS, "")))
        interval_ms = DEFAULT_INTERVAL_MS
        if _INTERVAL_MS in values and (told := whole_number(values[_INTERVAL_MS].strip())) is not None:
            interval_ms = told
        return Subscription(name, metrics, interval_ms, tuple(match.items()))

    def of(self, client: Client) -> Handling[Wanted]:
        """The wishes of all subscriptions that fit a client, in steps."""
        everything = self._all
        fitting = []
        for number, one in enumerate(everything):
            if (yield from one.fits(client)):
                fitting.append(number)
        if everything is not self._all:
            return (yield from self.of(client))
        key = tuple(fitting)
        wanted = self._wanted.get(key)
        if wanted is None:
            if len(self._wanted) > TELEMETRY_SUBSCRIPTIONS:
                self._wanted.clear()
            wanted = self._wanted[key] = _together(everything[number] for number in fitting)
        return wanted


def _together(subscriptions: Iterable[Subscription]) -> Wanted:
    metrics: dict[str, None] = {}
    interval_ms = DEFAULT_INTERVAL_MS
    for one in subscriptions:
        metrics.update(dict.fromkeys(in_slot_order(tuple(dict.fromkeys(one.metrics)))))
        interval_ms = min(interval_ms, one.interval_ms)
    return Wanted((ALL,) if ALL in metrics else tuple(in_slot_order(tuple(metrics))), interval_ms)


def _elements(text: str) -> list[str]:
    return [one.strip() for one in text.split(",")] if text.strip() else []
