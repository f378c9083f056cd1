"""Lines, blanks and numbers as Java sees them; each case is what Kafka 4.3.1's own readers made of it."""

import pytest

from metadata_log import java_text
from metadata_log.types import Uuid


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("\n", [""]),
        ("a\nb", ["a", "b"]),
        ("a\r\nb\rc\n", ["a", "b", "c"]),
        ("a\n\n", ["a", ""]),
        ("a\x0bb\x0cc\x1cd\x85e\u2028f", ["a\x0bb\x0cc\x1cd\x85e\u2028f"]),
    ],
)
def test_lines(text, lines):
    assert java_text.lines(text) == lines


def test_only_blanks_and_control_characters_are_trimmed():
    assert java_text.trim("\x00\t\x1c a\xa0b \x1f\r\n") == "a\xa0b"
    assert java_text.trim("\xa0a\x85") == "\xa0a\x85"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        ("+12", 12),
        ("-0", 0),
        ("0000000000000000000000012", 12),
        ("\u0661\u0662", 12),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
        ("2147483648", None),
        ("-2147483649", None),
        ("", None),
        ("-+5", None),
        (" 1", None),
        ("1_0", None),
        ("\xb2", None),
        ("1.0", None),
        pytest.param("1" * 5000, None, id="thousands of digits"),
        pytest.param("-" + "0" * 5000 + "12", -12, id="thousands of zeros"),
        pytest.param("0" * 5000, 0, id="thousands of zeros alone"),
    ],
)
def test_whole_numbers(text, number):
    assert java_text.whole_number(text) == number


def test_whole_numbers_of_64_bits():
    assert java_text.whole_number("09223372036854775807", bits=64) == 2**63 - 1
    assert java_text.whole_number("9223372036854775808", bits=64) is None


def test_the_text_of_a_uuid():
    assert str(Uuid.parse("FAtJ3q8rQ_6k7y3bJ5h1-A==")) == "FAtJ3q8rQ_6k7y3bJ5h1-A"
    for text in (
        "FAtJ3q8rQ/6k7y3bJ5h1+A",
        "FAtJ3q8rQ_6k7y3bJ5h1-A=",
        "FAtJ3q8rQ_6k7y3bJ5h1-A\n",
        "FAtJ3 8rQ_6k7y3bJ5h1-A",
    ):
        with pytest.raises(ValueError, match="not a Kafka uuid"):
            Uuid.parse(text)
