"""What a user can get wrong: in a configuration, or on the command line."""

from __future__ import annotations


class _UserError(Exception):
    """`what` is wrong, `where` it stands, and a `hint` what to do about it."""

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what} ({self.where})" if self.where else self.what


class ConfigError(_UserError):
    """A configuration cannot be used; `where` names the file, the line and the key."""


class UsageError(_UserError):
    """A command or function was called with arguments that do not go together."""
