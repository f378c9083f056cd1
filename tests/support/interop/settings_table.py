"""Writes `kraft/config/kafka_table.py`, Kafka's own table of settings, from the jars of Apache Kafka.

`PYTHONPATH=tests python -m support.interop.settings_table` writes it;
`tests/interop/controller/test_kafka_settings.py` compares it. For another release, add it to `metadata_log.releases`
first: the difference of the module is what has changed.
"""

from __future__ import annotations

import gzip
from typing import Final

from metadata_log.releases import NEWEST_RELEASE
from support import ROOT, TESTS

ORACLE: Final = TESTS / "interop" / "ConfigOracle.java"
MODULE: Final = ROOT / "kraft/config/kafka_table.py"
QUESTION: Final = "settings"
DOCUMENTATION: Final = ROOT / "kraft/config/kafka_documentation.json.gz"
"""Kafka's texts about its settings, by kind and key."""
TEXTS: Final = "documentation"
_HEAD: Final = f'''\
"""Every setting of Apache Kafka {NEWEST_RELEASE}, from its own tables (`ConfigDef`). Generated: do not edit.

`tests/support/interop/settings_table.py` writes this module from Kafka's jars. A line is kind, key, type, importance,
how the setting changes, whether it is public, default and limits, between bars; `kraft.config.definitions` reads it.
"""

from __future__ import annotations

from typing import Final

# ruff: noqa: E501
SETTINGS: Final = """\\
'''


def module_of(lines: list[str]) -> str:
    """The text of the module for the answer of the oracle."""
    return _HEAD + "".join(f"{line}\n" for line in lines) + '"""\n'


def documentation_of(line: str) -> bytes:
    """The content of `DOCUMENTATION` for the answer of the oracle."""
    return gzip.compress(line.encode(), mtime=0)


if __name__ == "__main__":
    from support.interop.kafka_or_skip import found_or_skipped, oracle

    DOCUMENTATION.write_bytes(documentation_of(oracle(found_or_skipped(NEWEST_RELEASE), ORACLE, [TEXTS]).strip()))
    MODULE.write_text(module_of(oracle(found_or_skipped(NEWEST_RELEASE), ORACLE, [QUESTION]).splitlines()))
