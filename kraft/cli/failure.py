"""How a command says that it failed, when no other error says it better."""

from __future__ import annotations


class CommandFailed(Exception):
    """The operation failed: what, a hint, and the exit code. An empty `what` when the command has said it already."""

    def __init__(self, what: str = "", *, hint: str | None = None, exit_code: int = 1) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.exit_code = exit_code
