"""Credentials: derived as RFC 5802 and RFC 7677 say, refused without a word of the password."""

from __future__ import annotations

import base64
from hashlib import pbkdf2_hmac
from random import Random

import pytest

from metadata_log.errors import DirectoryError
from metadata_log.records.scram import parse_credential

RFC7677_SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="


def test_the_example_of_the_standard() -> None:
    """RFC 7677, section 3: user `user`, password `pencil`; the signature of its server comes out of our key."""
    found = parse_credential(f"SCRAM-SHA-256=[name=user,password=pencil,salt={RFC7677_SALT}]", Random(1))
    assert (found.name, found.mechanism, found.iterations) == ("user", 1, 4096)
    assert found.salt == base64.b64decode(RFC7677_SALT)
    assert base64.b64encode(found.stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert base64.b64encode(found.server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="


@pytest.mark.parametrize(("mechanism", "hash_name"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
def test_salted_passwords(mechanism: str, hash_name: str) -> None:
    """The salted password stands for password, salt and iterations; quotes and blanks are allowed."""
    salt = b"some salt"
    text = base64.b64encode(salt).decode()
    salted = base64.b64encode(pbkdf2_hmac(hash_name, b"a,b]", salt, 8192)).decode()
    plain = parse_credential(f'{mechanism}=[name=x,password="a,b]",salt={text},iterations=8192]', Random(1))
    other = parse_credential(
        f'{mechanism}=[iterations=8192, name="x", saltedpassword="{salted}", salt="{text}"]', Random(2)
    )
    assert plain == other


def test_salts_are_random() -> None:
    first, second = (parse_credential("SCRAM-SHA-512=[name=x,password=y]", Random(seed)) for seed in (1, 2))
    assert len(first.salt) == 20
    assert first.salt != second.salt
    assert first.stored_key != second.stored_key


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "begins with SCRAM-SHA-256 or SCRAM-SHA-512"),
        ("MD5=[name=x,password=secret]", "begins with"),
        ("SCRAM-SHA-256=name=x,password=secret", "in brackets"),
        ("SCRAM-SHA-256=[password=secret]", "no name"),
        ("SCRAM-SHA-256=[name=x]", "either password or saltedpassword"),
        ("SCRAM-SHA-256=[name=x,password=secret,saltedpassword=c2VjcmV0,salt=c2VjcmV0]", "either password or salted"),
        ("SCRAM-SHA-256=[name=x,saltedpassword=c2VjcmV0]", "needs its salt"),
        ("SCRAM-SHA-256=[name=x,password=secret,salt=*]", "salt is not base64"),
        ("SCRAM-SHA-256=[name=x,saltedpassword=secret!,salt=c2VjcmV0]", "saltedpassword is not base64"),
        ("SCRAM-SHA-256=[name=x,password=]", "the password is empty"),
        ("SCRAM-SHA-256=[name=x,password=secret,iterations=4095]", "4096 to 16384, not 4095"),
        ("SCRAM-SHA-256=[name=x,password=secret,iterations=16385]", "4096 to 16384"),
        ("SCRAM-SHA-256=[name=x,password=secret,iterations=many]", "not many"),
        ("SCRAM-SHA-256=[name=x,name=y,password=secret]", "each once"),
        ("SCRAM-SHA-256=[name=x,password=secret,colour=red]", "no setting colour"),
        ("SCRAM-SHA-256=[name]", "NAME=VALUE"),
    ],
)
def test_refusals(text: str, words: str) -> None:
    with pytest.raises(DirectoryError, match=words) as caught:
        parse_credential(text, Random(1))
    assert caught.value.hint
    assert "secret" not in caught.value.what
