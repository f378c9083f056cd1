"""Properties files without the library, as the library reads and writes them."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import javaproperties
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metadata_log.java_properties import BadEscape, Entry, entries, entry, setting, time_comment

TEXTS = st.text(st.sampled_from(" \t\f\r\n=:#!ab.\x0b\x85\u2028é"), max_size=40)


@given(TEXTS)
@example("a=1\rb : 2\r\n\n#c\n!d\n  e\tf = g \n=h\n:\n\fi")
def test_a_text_without_a_backslash_is_read_as_by_the_library(text: str) -> None:
    """Such a text is read without it."""
    assert [(key, value) for key, value, _ in entries(text)] == javaproperties.loads(text, list)
    assert list(entries(text)) == list(entries(f"{text}\n#\\"))


def test_escapes_are_read_by_the_library() -> None:
    """An entry has the number of its first line."""
    assert list(entries("a=1\nb=2\\\n  3\nc\\=d=\\u00e9")) == [
        Entry("a", "1", 1),
        Entry("b", "23", 2),
        Entry("c=d", "é", 4),
    ]
    with pytest.raises(BadEscape) as bad:
        list(entries("a=1\nb=\\u12"))
    assert bad.value.line == 2


@given(
    st.text(st.sampled_from("ab. =:#\\\n,/é-"), min_size=1, max_size=12),
    st.text(st.sampled_from("ab. =:#\\\n,/é-"), max_size=12),
)
@example("log.dirs", "/var/lib/kafka")
@example("a b", "c  d")
def test_an_entry_is_written_as_by_the_library(key: str, value: str) -> None:
    """Plain texts are written without it."""
    assert entry(key, value) == javaproperties.join_key_value(key, value)
    assert list(entries(entry(key, value))) == [Entry(key, value, 1)]
    assert list(entries(setting(key, value))) == [Entry(key, value, 1)]


@pytest.mark.parametrize("at", [0, 1_700_000_000_123, 4_102_444_800_000])
def test_the_time_is_that_of_java(at: int) -> None:
    """In UTC, whatever the locale."""
    assert time_comment(at) == f"#{javaproperties.java_timestamp(datetime.fromtimestamp(at / 1000, UTC))}"


def test_a_plain_file_does_not_load_the_library() -> None:
    """It imports parsers of XML and HTTP."""
    code = (
        "import sys; from metadata_log.java_properties import entries, entry, setting;"
        "list(entries(entry('log.dirs', '/var/lib/a b')));"
        "list(entries(setting('listeners', 'PLAINTEXT://127.0.0.1:1,SSL://:2')));"
        "print('javaproperties' in sys.modules, 'http.client' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
