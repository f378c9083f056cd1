"""Which topics the regular expressions of a group stand for, found in portions (Kafka: `TopicRegexResolver`)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Final

from kraft.broker.groups.consumer.group import ResolvedRegex
from kraft.broker.groups.consumer.hashing import TopicHashes
from kraft.broker.handling.patterns import InvalidPattern, Pattern
from metadata_log.image import MetadataImage

NAMES_PER_STEP: Final = 200
Resolving = Generator[None, None, dict[str, ResolvedRegex]]


def resolving(
    regexes: Iterable[str],
    image: MetadataImage,
    may_describe: Callable[[str], bool],
    hashes: TopicHashes,
    now_ms: int,
) -> Resolving:
    """Find the topics of each expression, in steps of some milliseconds.

    Args:
        regexes: The expressions. One that is none, which a log of another release may have, stands for no topic.
        image: The metadata.
        may_describe: Whether the member that has asked may see a topic.
        hashes: Gets the hashes of the topics, which the epoch of the group needs.
        now_ms: The time that the result gets.
    """
    result: dict[str, ResolvedRegex] = {}
    allowed: dict[str, bool] = {}
    for regex in regexes:
        topics: set[str] = set()
        try:
            pattern = Pattern(regex)
        except InvalidPattern:
            pattern = None
        yield None
        for number, name in enumerate(image.topics.by_name if pattern is not None else ()):
            assert pattern is not None
            if (yield from pattern.matching(name)):
                if name not in allowed:
                    allowed[name] = may_describe(name)
                if allowed[name]:
                    topics.add(name)
            if number % NAMES_PER_STEP == 0:
                yield None
        result[regex] = ResolvedRegex(frozenset(topics), image.end.offset - 1, now_ms)
        yield from hashes.preparing(image, topics)
    return result
