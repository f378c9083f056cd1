"""The name and the version of this software.

`pyproject.toml` reads the version here. To ask for the installed one loads some sixty modules, which a start would wait
for.
"""

from typing import Final

SOFTWARE_NAME: Final = "trio-kraft"
SOFTWARE_VERSION: Final = "0.1.0"
