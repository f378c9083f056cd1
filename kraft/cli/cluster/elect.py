"""`kraft elect`: requests leader elections (Kafka: `LeaderElectionCommand`)."""

from __future__ import annotations

from functools import partial

import click

from kraft.admin import AdminClient, ElectionOutcome, ElectionType, TopicPartition, elect_leaders
from kraft.cli.cluster.administration import (
    Cluster,
    add_near_names,
    as_failure,
    image_of,
    on_a_cluster,
    parse_partition,
)
from kraft.cli.near import unknown_topic
from kraft.cli.text import count


@click.command(
    "elect",
    short_help="Elect leaders: preferred, or unclean.",
    epilog="Example: kraft elect preferred --all --bootstrap-controller 127.0.0.1:9093",
)
@click.argument("kind", type=click.Choice([each.name.lower() for each in ElectionType]))
@click.option("--topic-partition", "words", multiple=True, metavar="T:P", help="This partition. May be repeated.")
@click.option("--topic", "topics", multiple=True, metavar="T", help="All partitions of this topic. May be repeated.")
@click.option("--all", "everything", is_flag=True, help="All partitions that there are.")
@on_a_cluster
def elect_command(
    kind: str, *, words: tuple[str, ...], topics: tuple[str, ...], everything: bool, cluster: Cluster
) -> None:
    """Elect leaders of some partitions or of all.

    preferred elects the first replica of each partition, if it is in sync. unclean elects any live replica where no
    replica in sync is alive: the records that the new leader lacks are lost.
    """
    if everything == bool(words or topics):
        raise click.UsageError("Say which partitions: --topic-partition, --topic, or --all.")
    named = tuple(parse_partition(word) for word in words)
    ask = partial(_elect, election=ElectionType[kind.upper()], named=named, topics=topics, everything=everything)
    outcome = cluster.ask(ask, is_forwarded=not topics)
    facts = {
        "election": kind,
        "elected": [str(one) for one in outcome.elected],
        "notNeeded": [str(one) for one in outcome.not_needed],
        "failed": [{"partition": name, "error": failed.error.name} for name, failed in outcome.refused.items()],
    }
    lines = [f"{one}: elected a leader" for one in outcome.elected]
    if outcome.not_needed:
        lines.append(f"{count(len(outcome.not_needed), 'partition')} needed no election")
    cluster.say(facts, lines or ([] if outcome.refused else ["No partition needed an election."]))
    if outcome.refused:
        raise as_failure(outcome.refused.values())


async def _elect(
    admin: AdminClient,
    *,
    election: ElectionType,
    named: tuple[TopicPartition, ...],
    topics: tuple[str, ...],
    everything: bool,
) -> ElectionOutcome:
    wanted = None if everything else (*named, *await _of_topics(admin, topics))
    outcome = await elect_leaders(admin, election, wanted)
    await add_near_names(admin, outcome.refused.values())
    return outcome


async def _of_topics(admin: AdminClient, topics: tuple[str, ...]) -> tuple[TopicPartition, ...]:
    """The partitions of these topics."""
    if not topics:
        return ()
    image = await image_of(admin)
    missing = next((name for name in topics if name not in image.topics), None)
    if missing is not None:
        raise unknown_topic(missing, image.topics, hint="See `kraft topics list`.")
    return tuple(
        TopicPartition(name, number) for name in topics for number in range(len(image.topics[name].partitions))
    )
