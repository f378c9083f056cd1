"""Makes the modules beside this file importable for the tests of every package, and settles how Hypothesis runs."""

from __future__ import annotations

from hypothesis import settings

# A machine that is busy with other things must not fail a test: no property here is about speed.
settings.register_profile("repository", deadline=None, print_blob=True)
settings.load_profile("repository")
