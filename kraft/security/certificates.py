"""The content of a certificate: its names and its end. Kafka: `SslFactory.CertificateEntries`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec import Struct

from kraft.security.subjects import subject_of

NEAR_END: Final = timedelta(days=30)
"""A certificate that ends sooner than this is warned of."""
_DAY: Final = timedelta(days=1)


class Certificate(Struct, frozen=True, kw_only=True):
    """One certificate of this side or of a peer."""

    subject: str
    """As Java prints it."""
    names: frozenset[str]
    """The subject alternative names."""
    hosts: tuple[str, ...]
    """The names among these that are hosts or addresses."""
    begins: datetime
    ends: datetime
    serial: str
    """The serial number in hexadecimal digits."""

    @classmethod
    def of(cls, found: x509.Certificate) -> Certificate:
        """Read a certificate; raises `ValueError`."""
        try:
            extension = found.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            found_names = list(extension.value)
        except x509.ExtensionNotFound:
            found_names = []
        return cls(
            subject=subject_of(found.public_bytes(Encoding.DER)),
            names=frozenset(str(name.value) for name in found_names),
            hosts=tuple(
                sorted(str(name.value) for name in found_names if isinstance(name, x509.DNSName | x509.IPAddress))
            ),
            begins=found.not_valid_before_utc,
            ends=found.not_valid_after_utc,
            serial=f"{found.serial_number:x}",
        )

    @classmethod
    def parse(cls, der: bytes) -> Certificate:
        """Read the certificate with these bytes; raises `ValueError`."""
        return cls.of(x509.load_der_x509_certificate(der))


def validity_warning(certificate: Certificate) -> str | None:
    """Why peers refuse this certificate now or soon, as a text; None for one that is valid for longer."""
    now = datetime.now(UTC)
    if certificate.ends < now:
        return f"the certificate has expired at {_at(certificate.ends)}, and peers refuse it"
    if certificate.begins > now:
        return f"the certificate is not valid before {_at(certificate.begins)}, and peers refuse it"
    left = certificate.ends - now
    if left < NEAR_END:
        days = left // _DAY
        return f"the certificate expires at {_at(certificate.ends)}, in {days} day{'' if days == 1 else 's'}"
    return None


def is_valid(certificate: Certificate, now: datetime) -> bool:
    """Whether peers may accept this certificate at this time."""
    return certificate.begins <= now <= certificate.ends


def _at(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
