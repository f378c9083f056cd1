"""The moments that options take, by a clock that stands still."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kraft.cli.moments import parse_moment
from metadata_log.reading.timeline import At, moment_text
from support.kraft.command_line import run

NOW = datetime(2026, 11, 26, 16, 30, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", "2026-11-26T16:30:15.000Z"),
        ("-30s", "2026-11-26T16:29:45.000Z"),
        ("-10m", "2026-11-26T16:20:15.000Z"),
        ("-1h30m", "2026-11-26T15:00:15.000Z"),
        ("-2d", "2026-11-24T16:30:15.000Z"),
        ("-1w", "2026-11-19T16:30:15.000Z"),
        ("today", "2026-11-26T00:00:00.000Z"),
        ("yesterday", "2026-11-25T00:00:00.000Z"),
        ("yesterday 14:00", "2026-11-25T14:00:00.000Z"),
        ("today 9:05", "2026-11-26T09:05:00.000Z"),
        ("14:00", "2026-11-26T14:00:00.000Z"),
        ("9:05:07.5", "2026-11-26T09:05:07.500Z"),
        ("2026-11-20", "2026-11-20T00:00:00.000Z"),
        ("2026-11-20T10:00", "2026-11-20T10:00:00.000Z"),
        ("2026-11-20 12:00:00.5+02:00", "2026-11-20T10:00:00.500Z"),
        ("2026-11-20T10:00:00Z", "2026-11-20T10:00:00.000Z"),
    ],
)
def test_a_time_is_one_of_utc(text: str, moment: str) -> None:
    assert moment_text(parse_moment(text, NOW)) == moment


@pytest.mark.parametrize("text", ["0", "12345", "20261126", "1430"])
def test_a_number_is_an_offset(text: str) -> None:
    assert parse_moment(text, NOW) == At(offset=int(text))


@pytest.mark.parametrize("text", ["", "-1", "-m", "25:00", "14:61", "tomorrow", "²", "-99999999w", "yesterday x"])
def test_other_words_are_refused_with_the_forms(text: str) -> None:
    with pytest.raises(
        ValueError, match=rf"^{text!r} is (neither an offset nor a time, such as .* -10m|before the calendar)"
    ):
        parse_moment(text, NOW)


OPTIONS = (
    ("history", "NODE", "--since"),
    ("history", "NODE", "--until"),
    ("replay", "NODE", "--at"),
    ("shell", "NODE", "--at"),
    ("dump", "NODE", "--since"),
    ("dump", "NODE", "--until"),
    ("diff", "NODE", "NODE", "--at-a"),
    ("diff", "NODE", "NODE", "--at-b"),
    ("watch", "--bootstrap-controller", "127.0.0.1:1", "--timeout", "0.1", "--since"),
    ("consume", "t", "--bootstrap-server", "127.0.0.1:1", "--timeout", "0.1", "--from"),
    ("fleet", "history", "leaders", "NODE", "--option", "since="),
)


@pytest.mark.parametrize("words", OPTIONS, ids=lambda words: " ".join((words[0], words[-1])))
def test_every_option_with_a_time_takes_the_same_forms(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    *before, option = [word.replace("NODE", str(tmp_path)) for word in words]
    for text in ("-10m", "yesterday", "14:00", "2026-11-20", "12"):
        if option.endswith("="):
            continue
        done = run(capsys, *before, option, text)
        assert "neither an offset" not in done.err, (text, done.err)
        assert "no start" not in done.err, (text, done.err)
    typed = (option + "soon",) if option.endswith("=") else (option, "soon")
    done = run(capsys, *before, *typed)
    assert done.code == 2, done.err
    assert "'soon' is neither an offset nor a time, such as 12345" in done.err
