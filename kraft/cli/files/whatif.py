"""`kraft whatif`: predicts the controller's reaction to an event from the metadata log alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import click

from kraft.cli.files.image_at import ImageAt, at_option, damage_json, image_at, reading_options, report_damages
from kraft.cli.progress import progress_option
from kraft.cli.reassignment_file import read_targets
from kraft.cli.text import count, echo, echo_lines, table
from kraft.config.data_settings import TopicDefaults
from kraft.controller.topics.leader_selection import Election
from kraft.whatif import ImageOutcome, PartitionOutcome, elect, fail, fail_rack, leaderships, reassign, shut_down
from metadata_log.image import MetadataImage
from metadata_log.image.topics import NO_LEADER
from metadata_log.reading.damage import OnDamage
from metadata_log.reading.timeline import At

MOST_LINES: Final = 20
"""The limit on printed partitions, without --all."""
Question = Callable[[MetadataImage, TopicDefaults], ImageOutcome]


@click.command(
    "whatif",
    short_help="What would happen if a broker failed?",
    epilog="Example: kraft whatif /var/lib/kafka/metadata --fail 101 --fail 102",
)
@click.argument("path", type=click.Path(exists=True), metavar="DIR")
@at_option
@click.option("--fail", "failed", type=int, multiple=True, metavar="BROKER", help="This broker dies. May be repeated.")
@click.option("--shutdown", type=int, multiple=True, metavar="BROKER", help="This broker shuts down gracefully.")
@click.option("--fail-rack", metavar="R", help="All brokers of this rack die.")
@click.option(
    "--elect",
    "election",
    type=click.Choice([Election.PREFERRED.value, Election.UNCLEAN.value]),
    help="An election of this kind is requested, for all partitions.",
)
@click.option("--reassign", "file", type=click.Path(), metavar="FILE", help="A file of kafka-reassign-partitions runs.")
@click.option("--min-isr", type=click.IntRange(min=1), default=1, show_default=True, help="Where the log sets none.")
@click.option("--unclean", is_flag=True, help="Unclean election is on where the log does not set it.")
@click.option("--all", "everything", is_flag=True, help=f"Print every partition, not only the first {MOST_LINES}.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
@progress_option
@reading_options
@click.pass_context
def whatif_command(
    context: click.Context,
    path: str,
    *,
    at: At | None,
    failed: tuple[int, ...],
    shutdown: tuple[int, ...],
    fail_rack: str | None,
    election: str | None,
    file: str | None,
    min_isr: int,
    unclean: bool,
    everything: bool,
    as_json: bool,
    on_damage: str,
) -> None:
    """Run the controller's decisions on the image of a cluster, and print the partitions that change.

    DIR is a log directory, the directory of the metadata partition, a segment or a snapshot; a running node's may be
    read. The command writes nothing. The log lacks the brokers' own configuration files: --min-isr and --unclean
    replace them.
    """
    question = _question(failed, shutdown, fail_rack, election, file)
    replayed = image_at(path, at, OnDamage(on_damage))
    outcome = question(replayed.image, TopicDefaults(min_isr=min_isr, unclean_election=unclean))
    if as_json:
        damages = [damage_json(damage) for damage in replayed.damages]
        echo(json.dumps({"path": replayed.path, **outcome_json(outcome), "damage": damages}, ensure_ascii=False))
    else:
        echo_lines(_lines(replayed, outcome, None if everything else MOST_LINES))
    context.exit(1 if report_damages(replayed.damages, hint=replayed.hint) else 0)


def _question(
    failed: tuple[int, ...], shutdown: tuple[int, ...], rack: str | None, election: str | None, file: str | None
) -> Question:
    questions: list[Question] = []
    if failed:
        questions.append(lambda image, defaults: fail(image, failed, defaults))
    if shutdown:
        questions.append(lambda image, defaults: shut_down(image, shutdown, defaults))
    if rack is not None:
        questions.append(lambda image, defaults: fail_rack(image, rack, defaults))
    if election is not None:
        questions.append(lambda image, defaults: elect(image, Election(election), defaults))
    if file is not None:
        targets = read_targets(file)
        questions.append(lambda image, defaults: reassign(image, targets, defaults))
    if len(questions) != 1:
        raise click.UsageError("Give exactly one of --fail, --shutdown, --fail-rack, --elect and --reassign.")
    return questions[0]


def outcome_json(outcome: ImageOutcome) -> dict[str, Any]:
    """All changes as JSON fields; pairs are before and after."""
    before, after = leaderships(outcome.before), leaderships(outcome.after)
    brokers = sorted(before.keys() | after.keys())
    return {
        "offset": outcome.before.end.offset - 1,
        "epoch": outcome.before.end.epoch,
        "records": len(outcome.records),
        "moves": sum(each.moves for each in outcome.partitions),
        "goes_offline": sum(each.goes_offline for each in outcome.partitions),
        "falls_below_min_isr": sum(each.falls_below_min_isr for each in outcome.partitions),
        "loses_data": sum(each.loses_data for each in outcome.partitions),
        "leaderships": {str(broker): [before.get(broker, 0), after.get(broker, 0)] for broker in brokers},
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "leader": [each.before.leader, each.after.leader],
                "leader_epoch": [each.before.leader_epoch, each.after.leader_epoch],
                "replicas": [each.before.replicas, each.after.replicas],
                "isr": [each.before.isr, each.after.isr],
                "elr": [each.before.elr, each.after.elr],
                "min_isr": each.min_isr,
                "outcome": _words(each),
            }
            for each in outcome.partitions
        ],
    }


def _words(each: PartitionOutcome) -> list[str]:
    kinds = {
        "moves": each.moves,
        "goes offline": each.goes_offline,
        "falls below min ISR": each.falls_below_min_isr,
        "may lose records": each.loses_data,
        "replicas change": each.before.replicas != each.after.replicas,
    }
    return [word for word, holds in kinds.items() if holds]


def _lines(found: ImageAt, outcome: ImageOutcome, most: int | None) -> Iterator[str]:
    partitions = outcome.partitions
    yield f"{found.where}:"
    changing = count(len(partitions), "partition")
    yield f"  {changing} would change, in {count(len(outcome.records), 'record')}"
    yield f"  {sum(each.moves for each in partitions):,} would get another leader"
    yield f"  {sum(each.goes_offline for each in partitions):,} would go offline"
    yield f"  {sum(each.falls_below_min_isr for each in partitions):,} would fall below min.insync.replicas"
    yield f"  {sum(each.loses_data for each in partitions):,} would be led by a replica that may lack committed records"
    before, after = leaderships(outcome.before), leaderships(outcome.after)
    brokers = sorted(before.keys() | after.keys())
    rows = [(_name(broker), before.get(broker, 0), after.get(broker, 0)) for broker in brokers]
    yield ""
    yield from table(("broker", "leads", "would lead"), rows)
    if partitions:
        yield ""
        worst_first = sorted(partitions, key=lambda each: not (each.goes_offline or each.loses_data))
        yield from table(("partition", "leader", "in sync", "outcome"), map(_row, worst_first[:most]))
        if most is not None and len(partitions) > most:
            yield f"… and {len(partitions) - most:,} more (--all)"


def _row(each: PartitionOutcome) -> tuple[str, str, str, str]:
    return (
        f"{each.topic}-{each.partition}",
        _change(_name(each.before.leader), _name(each.after.leader)),
        _change(_ids(each.before.isr), _ids(each.after.isr)),
        ", ".join(_words(each)) or "the in-sync set changes",
    )


def _name(broker: int) -> str:
    return "none" if broker == NO_LEADER else str(broker)


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids)) or "none"


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"
