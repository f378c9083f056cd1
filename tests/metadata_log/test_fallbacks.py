"""Where no wheel or library exists, code in Python stands in: it computes the same."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from datetime import UTC, datetime

import google_crc32c
import javaproperties
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metadata_log import crc32c, crc32c_in_python, pbkdf2, pbkdf2_in_python
from metadata_log.java_properties import BadEscape, Entry, entries, entry, setting, time_comment


@given(data=st.binary(max_size=300), after=st.binary(max_size=20))
def test_both_checksums_are_equal(data: bytes, after: bytes) -> None:
    crc = crc32c_in_python.value(data)
    assert crc == google_crc32c.value(data) == crc32c.value(data)
    assert (
        crc32c_in_python.extend(crc, after) == google_crc32c.extend(crc, after) == crc32c_in_python.value(data + after)
    )


def test_the_checksum_is_that_of_castagnoli() -> None:
    assert crc32c_in_python.value(b"123456789") == 0xE3069283  # the check value of CRC-32/ISCSI


@pytest.mark.parametrize("name", ["sha1", "sha256", "sha512"])
@given(password=st.binary(max_size=150), salt=st.binary(max_size=40), iterations=st.integers(1, 4))
def test_both_derived_keys_are_equal(name: str, password: bytes, salt: bytes, iterations: int) -> None:
    expected = hashlib.pbkdf2_hmac(name, password, salt, iterations)
    assert pbkdf2_in_python.pbkdf2_hmac(name, password, salt, iterations) == expected
    assert pbkdf2.pbkdf2_hmac(name, password, salt, iterations) == expected


@given(length=st.integers(1, 100))
def test_a_derived_key_may_be_longer_than_a_digest(length: int) -> None:
    expected = hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 2, length)
    assert pbkdf2_in_python.pbkdf2_hmac("sha256", b"word", b"salt", 2, length) == expected


# Properties files without the library, as the library reads and writes them.


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
