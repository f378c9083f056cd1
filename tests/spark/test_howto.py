"""Runs the Spark programs of the pages of `docs/howto`, and compares their output with the pages."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent
HOWTO = ROOT / "docs" / "howto"
SNIPPET = re.compile(
    r"^```python\n(?P<code># spark: .*?)^```\n(?:\n```\n(?P<shown>\+-.*?)^```$)?", re.MULTILINE | re.DOTALL
)
UNPACKED = re.compile(r"^\$ python3 -m tarfile -e (\S+) (\S+)$", re.MULTILINE)
SNIPPETS = [
    pytest.param(page, match["code"], match["shown"], id=page.stem)
    for page in sorted(HOWTO.glob("*.md"))
    for match in SNIPPET.finditer(page.read_text())
]


def test_the_page_has_at_least_four_snippets() -> None:
    assert len(SNIPPETS) >= 4


@pytest.mark.parametrize(("page", "code", "shown"), SNIPPETS)
def test_snippets_show_what_the_page_shows(
    page: Path, code: str, shown: str | None, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for source, target in UNPACKED.findall(page.read_text()):
        with tarfile.open(ROOT / source) as tar:
            tar.extractall(tmp_path / target, filter="data")
    # Spark's workers have another working directory.
    exec(compile(code.replace('"corpus/', f'"{tmp_path}/corpus/'), page.name, "exec"), {"spark": spark})
    printed = capsys.readouterr().out
    assert printed.startswith("+-")
    if shown is not None:
        assert printed.strip() == shown.strip()
