"""Where no wheel exists, code in Python stands in: it computes the same."""

from __future__ import annotations

import hashlib

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_log import crc32c, crc32c_in_python, pbkdf2, pbkdf2_in_python


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
