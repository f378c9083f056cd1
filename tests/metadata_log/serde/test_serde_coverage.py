"""Every declared message, record and version has been compared with Kafka."""

from pathlib import Path

from support.codec_coverage import counted, declared, missing, report

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "codec-coverage.md"


def test_every_version_has_vectors():
    vectors, frames = counted()
    assert missing(vectors) == []
    assert sum(len(chapter) for _, chapter in declared()) == 27 + 44 + 2 + 4 + 4 + 8 + 1 + 5 + 2 * 91
    assert vectors.total() > 5000
    assert frames.total() > 3600


def test_the_page_is_current():
    """`PYTHONPATH=tests python -m support.codec_coverage > docs/reference/codec-coverage.md` writes it anew."""
    assert PAGE.read_text() == report()
