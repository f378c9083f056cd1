"""The topics that the regular expressions of a group stand for, found in portions (Kafka: `TopicRegexResolver`)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

from kraft.coordinators.groups.consumer.group import ResolvedRegex
from kraft.coordinators.groups.consumer.hashing import TopicHashes
from kraft.handling.patterns import InvalidPattern, Matching
from kraft.limits import PATTERN_UNITS_PER_PORTION
from metadata_log.image import MetadataImage

Resolving = Generator[int, None, dict[str, ResolvedRegex]]


def resolving(
    regexes: Iterable[str],
    image: MetadataImage,
    may_describe: Callable[[str], bool],
    hashes: TopicHashes,
    now_ms: int,
) -> Resolving:
    """Find the topics of each expression, in portions of some milliseconds. Each yields its cost, in units of the
    coordinator's budget. Topics that the member may not see are not matched.

    Args:
        regexes: The expressions. One that is none, which a log of another release may have, stands for no topic.
        image: The metadata.
        may_describe: Whether the member that has asked may see a topic.
        hashes: Gets the hashes of the topics, which the epoch of the group needs.
        now_ms: The time that the result gets.
    """
    result: dict[str, ResolvedRegex] = {}
    for regex in regexes:
        topics: set[str] = set()
        try:
            matching = Matching(regex)
        except InvalidPattern:
            yield 1
        else:
            for name in image.topics.by_name:
                matching.look()
                if may_describe(name) and matching.matches(name):
                    topics.add(name)
                if matching.is_due:
                    yield matching.pause()
            yield matching.pause()
        result[regex] = ResolvedRegex(frozenset(topics), image.end.offset - 1, now_ms)
        for _ in hashes.preparing(image, topics):
            yield PATTERN_UNITS_PER_PORTION
    return result
