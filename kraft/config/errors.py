"""The errors that commands report: mistakes of the user in a configuration or on the command line, and failures."""

from __future__ import annotations

from typing import Final

INTERRUPTED: Final = 130
"""The exit code of a command that SIGINT has ended, as in a shell."""


class _UserError(Exception):
    """`what` is the error, `where` its place, `hint` a remedy."""

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint
        if hint is not None:
            # What shows the error, shows what to do. The text stays without it, for those that show both apart.
            self.add_note(f"hint: {hint}")

    def __str__(self) -> str:
        return f"{self.what} ({self.where})" if self.where else self.what


class ConfigError(_UserError):
    """An invalid configuration (Kafka: `ConfigException`).

    Args:
        what: The error as a text.
        where: The file, the line and the key.
        hint: A remedy for the user.
    """


class UsageError(_UserError):
    """A command or function was called with contradicting arguments."""


class CommandFailed(Exception):
    """The command failed: a message, a hint, and the exit code. `what` is empty if the message is already printed."""

    def __init__(self, what: str = "", *, hint: str | None = None, exit_code: int = 1) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.exit_code = exit_code
