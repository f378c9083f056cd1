"""Administration drawn at random: what `controller_draws` draws beside topics, brokers and partitions.

Not drawn is what would slow down the client that asks (a quota that counts for it), what Kafka's controller fails on,
and what has become of a token that has just ended, as the two controllers' clocks differ and Kafka looks it up in a
cache that lags behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

from metadata_log.image import MetadataImage
from metadata_log.types import Uuid
from support.differential.controller_admin_steps import (
    CLIENT_ID,
    IP,
    USER,
    allow,
    by,
    controller_arrives,
    credentials,
    disallow,
    expire,
    levels,
    quotas,
    renew,
    replace,
    token,
)
from support.differential.controller_stories import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    METRICS,
    SET,
    SUBTRACT,
    TOPIC,
    Step,
    configure,
)

HOUR_MS: Final = 3_600_000
OTHER_CONTROLLER: Final = 7
UNKNOWN_TYPE: Final = 77
ENTITIES: Final[tuple[dict[str, str | None], ...]] = (
    {USER: "alice"},
    {USER: None},
    {CLIENT_ID: "app"},
    {USER: "alice", CLIENT_ID: None},
    {USER: None, CLIENT_ID: "app"},
)
QUOTAS: Final[tuple[dict[str, float | None], ...]] = (
    {"producer_byte_rate": 1e9},
    {"producer_byte_rate": 2e9, "consumer_byte_rate": 1e9},
    {"producer_byte_rate": None},
    {"consumer_byte_rate": None, "request_percentage": 1e9},
    {"controller_mutation_rate": 1e9},
)
BAD_QUOTAS: Final[tuple[tuple[dict[str, str | None], dict[str, float | None]], ...]] = (
    ({}, {"producer_byte_rate": 1.0}),
    ({"group": "g"}, {"producer_byte_rate": 1.0}),
    ({USER: ""}, {"producer_byte_rate": 1.0}),
    ({USER: "alice", IP: "10.0.0.1"}, {"connection_creation_rate": 1.0}),
    ({IP: "not an address"}, {"connection_creation_rate": 1.0}),
    ({IP: "10.0.0.1"}, {"producer_byte_rate": 1.0}),
    ({USER: "alice"}, {"nonsense": 1.0}),
    ({USER: "alice"}, {"producer_byte_rate": 0.0}),
    ({USER: "alice"}, {"producer_byte_rate": 1.5}),
    ({USER: "alice"}, {"consumer_byte_rate": 1e30}),
    ({IP: "10.0.0.1"}, {"connection_creation_rate": 1e12}),
    ({USER: "alice"}, {"request_percentage": -1.0}),
)
SHA_256, SHA_512 = 1, 2
PEOPLE: Final = ("alice", "bob")
FEATURES: Final = (
    "eligible.leader.replicas.version",
    "group.version",
    "share.version",
    "streams.version",
    "transaction.version",
)
LEVELS: Final = (7, 21, 25, 29, 30, 31, 33, 34)
"""Of metadata.version; there is no 34 yet."""


class AdminDraw:
    """Draws what administrators do with these topics; `name` is part of whatever they name.

    `said` chooses the version of a request.
    """

    def __init__(self, rng: Random, name: str, topics: list[str], said: Callable[[Step], Step]) -> None:
        self._rng = rng
        self._name = name
        self._topics = topics
        self._said = said
        self._image = MetadataImage()
        self._tokens = 0
        self._first_token: int | None = None
        self._ended: set[int] = set()

    def some(self, image: MetadataImage, issued: int) -> Iterator[Step]:
        """Draw one, in this state; `issued` tokens have been issued before."""
        self._image = image
        if self._first_token is None:
            self._first_token = issued
        self._tokens = issued
        kinds = (
            (2, self._quotas),
            (3, self._credentials),
            (4, self._acls),
            (5, self._token),
            (2, self._levels),
            (3, self._replace),
            (3, self._configure),
            (1, self._controller),
        )
        draw = self._rng.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])[0]
        yield draw()

    def _quotas(self) -> Step:
        rng = self._rng
        if rng.random() < 0.3:
            return quotas(*rng.choice(BAD_QUOTAS))
        if rng.random() < 0.2:
            address = rng.choice(("10.0.0.1", "::1", None))
            return quotas({IP: address}, {"connection_creation_rate": rng.choice((1e6, 2e6, None))})
        draw = rng.random()
        return quotas(rng.choice(ENTITIES), rng.choice(QUOTAS), twice=draw < 0.1, validate_only=draw > 0.9)

    def _credentials(self) -> Step:
        rng = self._rng
        user, mechanism = rng.choice((*PEOPLE, *PEOPLE, "")), rng.choice((SHA_256, SHA_512, SHA_512, 0))
        iterations = rng.choice((4096, 8192, 8192, 16384, 4095, 16385))
        draw = rng.random()
        if draw < 0.4:
            return credentials(drop=[(user, mechanism)])
        if draw < 0.6:
            return credentials(put=[("bob", SHA_256, iterations)], drop=[("bob", SHA_256)])
        return credentials(put=[(user, mechanism, iterations), ("carol", SHA_256, 4096)][: rng.randint(1, 2)])

    def _acls(self) -> Step:
        rng = self._rng
        name = rng.choice((*self._topics, "*"))
        if rng.random() < 0.3:
            kind = rng.choice((1, 2, 4))
            return disallow(*rng.sample((name, None), rng.randint(1, 2)), resource_type_filter=kind)
        if rng.random() < 0.2:
            no_principal = allow(name, principal="untyped")
            return rng.choice(
                (allow(name, resource_type=4), allow(""), no_principal, allow("kafka-cluster", resource_type=4))
            )
        user = f"User:{rng.choice(PEOPLE)}"
        pattern = rng.choice((3, 3, 4))
        return allow(*[name] * rng.randint(1, 2), principal=user, resource_pattern_type=pattern)

    def _token(self) -> Step:
        rng = self._rng
        draw, caller = rng.random(), rng.choice(PEOPLE)
        assert self._first_token is not None
        known = [number for number in range(self._first_token, self._tokens) if number not in self._ended]
        number = rng.choice(known) if known and rng.random() < 0.8 else None
        if draw < 0.4 or not known:
            renewer = (rng.choice(("User", "User", "User", "Group")), rng.choice(PEOPLE))
            owner = rng.choice(PEOPLE) if rng.random() < 0.2 else None
            lifetime_ms = rng.choice((-1, 0, 2 * HOUR_MS, 48 * HOUR_MS))
            return by(
                "ANONYMOUS" if owner else caller, self._said(token(renewer, lifetime_ms=lifetime_ms, owner=owner))
            )
        period_ms = rng.choice((-1, HOUR_MS, 30 * HOUR_MS))
        change = renew if draw < 0.7 else expire
        if change is expire and period_ms < 0 and number is not None:
            self._ended.add(number)
        step = change(number, period_ms)
        if rng.random() < 0.2:
            return step
        return by(caller, self._said(step), is_token=rng.random() < 0.15)

    def _levels(self) -> Step:
        rng = self._rng
        kind = rng.choice((0, 1, 1, 2, 2, 3, 9))
        draw = rng.random()
        if draw < 0.25:
            return levels(("metadata.version", rng.choice(LEVELS), kind), validate_only=rng.random() < 0.2)
        if draw < 0.35:
            return levels((rng.choice(("kraft.version", "nonsense")), rng.choice((0, 5)), kind))
        if draw < 0.45:
            return levels(("group.version", 1, 1), ("streams.version", 1, 1))
        feature, level = rng.choice(FEATURES), rng.choice((0, 0, 1, 1, 1, 2, -1))
        wanted = (feature, level, kind)
        return levels(wanted, validate_only=rng.random() < 0.1)

    def _resource(self) -> tuple[int, str]:
        return self._rng.choice(
            (
                (TOPIC, self._rng.choice(self._topics)),
                (TOPIC, "not a name"),
                (BROKER, "102"),
                (BROKER, "999"),
                (BROKER, "-3"),
                (BROKER, "first"),
                (METRICS, self._name),
                (METRICS, ""),
                (GROUP, self._name),
                (GROUP, ""),
                (UNKNOWN_TYPE, self._name),
            )
        )

    def _replace(self) -> Step:
        kind, name = self._resource()
        rng = self._rng
        wanted: dict[str, Any] = {}
        match kind:
            case 2:
                wanted = rng.choice(({"retention_ms": "5000"}, {"flush_ms": "7", "retention_ms": "x"}, {}))
                kept = self._image.configs.of((TOPIC, name)).get("min.insync.replicas")
                wanted |= {} if kept is None else {"min_insync_replicas": kept}
            case 16:
                good = {"interval_ms": "1000", "metrics": "a."}
                wanted = rng.choice((good, {"interval_ms": "1"}, {"interval_ms": None}))
            case 32:
                wanted = rng.choice(({"consumer_session_timeout_ms": "50000"}, {"nonsense": "1"}, {}))
            case _:
                wanted = rng.choice(({"log_cleaner_threads": "2"}, {"nonsense": "x"}, {}))
        draw = rng.random()
        # Kafka's controller does not answer at all if a resource of an unknown type is named twice.
        twice = draw < 0.1 and kind != UNKNOWN_TYPE
        return replace(kind, name, twice=twice, validate_only=draw > 0.9, **wanted)

    def _configure(self) -> Step:
        kind, name = self._resource()
        rng = self._rng
        changes: tuple[tuple[str, int, str | None], ...] = (
            ("metrics", APPEND, "org.apache."),
            ("metrics", SUBTRACT, "org.apache."),
            ("interval.ms", SET, rng.choice(("1000", "1", "soon"))),
            ("match", SET, rng.choice(("client_id=a.*", "nonsense"))),
            ("consumer.session.timeout.ms", SET, rng.choice(("50000", "1"))),
            ("consumer.session.timeout.ms", DELETE, None),
            ("share.auto.offset.reset", SET, rng.choice(("earliest", "never"))),
            ("compression.type", SET, rng.choice(("zstd", "best"))),
            ("log.cleaner.threads", SET, "3"),
            ("log.retention.minutes", SET, "3"),
            ("log.cleanup.policy", APPEND, "compact"),
        )
        draw = rng.random()
        # Of two that are wrong, Kafka names the one that its hash map gives it first; brokers' are not looked at.
        chosen = rng.sample(changes, rng.randint(0, 2 if kind == BROKER else 1))
        return configure(kind, name, *chosen, twice=draw < 0.1 and kind != UNKNOWN_TYPE, validate_only=draw > 0.9)

    def _controller(self) -> Step:
        """Sometimes one that cannot have some features, which then cannot be raised."""
        incarnation = Uuid(b"a controller 1" + bytes([0, self._rng.randrange(100)]))
        if self._rng.random() < 0.3:
            return controller_arrives(OTHER_CONTROLLER, incarnation, share_version=None, transaction_version=(0, 1))
        return controller_arrives(OTHER_CONTROLLER, incarnation)
