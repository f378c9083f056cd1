"""The first sentences of a page: the worst outage with its cause, then everything else that went wrong."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from metadata_log.report.incidents import Incident, Interval
from metadata_log.report.report_data import ReportData
from metadata_log.report.tables import counted, duration_text, time_text

_WORTH_A_WORD = 1.0
"""The shortest gap without an active controller, in seconds, that the headline names."""


def headline(report: ReportData, incidents: Sequence[Incident], read: Collection[str]) -> list[str]:
    """The findings in sentences, the worst first.

    Args:
        report: The collected data.
        incidents: The incidents, the worst first.
        read: The views that were read. A sentence states an absence only if its view was read.

    Returns:
        At least one sentence.
    """
    if report.begin is None or report.end is None:
        return ["The log holds no event of the requested kind."]
    known = "" if not report.unknown_ranges else "In the known part of this history, "
    sentences = [*_outages(report, incidents), *_unclean(report), *_controllers(report)]
    if not incidents and "unavailability" in read:
        what = "every partition had a leader and enough in-sync replicas all the time."
        sentences.insert(0, f"{known}{what}" if known else what[0].upper() + what[1:])
    if not sentences:
        sentences = ["This page is about a part of the history; the log of this part shows no outage."]
    if report.unknown_ranges:
        sentences.append(
            f"{counted(report.unknown_ranges, 'range')} of the log {'is' if report.unknown_ranges == 1 else 'are'} "
            "unknown: more may have happened there."
        )
    return sentences


def _outages(report: ReportData, incidents: Sequence[Incident]) -> list[str]:
    if not incidents:
        return []
    worst, several = incidents[0], len(report.clusters) > 1
    leaderless = worst.leaderless
    if leaderless:
        sentence = _sentence(leaderless, "had no leader", [each.leaderless for each in leaderless])
    else:
        seconds = [each.below_min_isr for each in worst.intervals]
        sentence = _sentence(worst.intervals, "refused writes with acks=all", seconds)
    where = f" in cluster {worst.cluster}" if several else ""
    sentences = [f"{sentence}{where} after {worst.after} ({time_text(worst.begin)} UTC)."]
    below = [each for each in worst.intervals if each.below_min_isr > 0]
    if leaderless and len(_names(below)) > len(_names(leaderless)):
        more = _sentence(below, "refused writes with acks=all", [each.below_min_isr for each in below])
        sentences.append(f"In the same incident, {more}.")
    if len(incidents) > 1:
        rest = incidents[1:]
        clusters = f" in {counted(len({each.cluster for each in incidents}), 'cluster')}" if several else ""
        without = sum(bool(each.leaderless) for each in rest)
        sentences.append(
            f"There {'was' if len(rest) == 1 else 'were'} {counted(len(rest), 'more incident')}"
            f"{clusters and f'; all incidents were{clusters}'}: "
            f"{without:,} with leaderless partitions, {len(rest) - without:,} only below min.insync.replicas."
        )
    return sentences


def _names(intervals: Sequence[Interval]) -> set[tuple[str, int]]:
    return {(each.topic, each.partition) for each in intervals}


def _sentence(intervals: Sequence[Interval], did: str, seconds: Sequence[float]) -> str:
    """The beginning of a sentence; one duration if all are the same, else the longest."""
    durations = {duration_text(each) for each in seconds}
    how_long = duration_text(max(seconds)) if len(durations) == 1 else f"up to {duration_text(max(seconds))}"
    still = sum(each.end is None for each in intervals)
    lasting = f", and {still:,} of them still at the end of the log," if still else ""
    return f"{counted(len(_names(intervals)), 'partition')} {did} for {how_long}{lasting}"


def _unclean(report: ReportData) -> list[str]:
    count = int(report.total("unclean elections"))
    if not count:
        return []
    return [
        f"{counted(count, 'unclean election')} chose {'a leader' if count == 1 else 'leaders'} that may lack "
        "acknowledged records."
    ]


def _controllers(report: ReportData) -> list[str]:
    gaps = [(span.what, cluster) for cluster, span, _ in report.gaps if span.what >= _WORTH_A_WORD]
    if not gaps:
        return []
    longest, cluster = max(gaps)
    where = f", in cluster {cluster}" if len(report.clusters) > 1 else ""
    times = "Once" if len(gaps) == 1 else f"{len(gaps):,} times"
    return [
        f"{times}, no controller was active for a second or more; the longest such time was "
        f"{duration_text(longest)}{where}."
    ]
