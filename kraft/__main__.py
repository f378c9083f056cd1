"""`python -m kraft` and the script `kraft`: the command, which Ctrl-C ends quietly at any moment."""

import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # who types `kraft` waits for each module
    from sys import UnraisableHookArgs

AGAIN_SECONDS = 0.01
"""After so long an interrupt comes again that Python has dropped."""
WHILE_LOADING = (100_000, 50, 1000)
"""So many new objects make a young collection due, which no command loads, and an old one comes seldom.

A look at the image of a million partitions stops a node for a second, and finds no cycle. `freeze_survivors` takes over
when a node has started.
"""


def main() -> None:
    """The console script; ends the process.

    Within the command Ctrl-C raises KeyboardInterrupt, which the command catches. Before, while modules are loaded, and
    after, while the interpreter ends, nothing is left to clean up, and the signal ends the process.
    """
    try:
        import signal

        # A shell starts a background process with SIGINT ignored, and so it stays.
        is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if is_heard:
            end_at_ctrl_c()
        import gc

        # Modules live until the end: looking for garbage among them is a tenth of the time of `--help`.
        gc.set_threshold(*WHILE_LOADING)
        from kraft.cli.main import main as command

        try:
            if is_heard:
                sys.unraisablehook = interrupt_again
                signal.signal(signal.SIGINT, signal.default_int_handler)
            command()
        finally:
            if is_heard:
                end_at_ctrl_c()
    except KeyboardInterrupt:  # in the few steps between those that are guarded otherwise
        raise SystemExit(130) from None


def end_at_ctrl_c() -> None:
    """From here on SIGINT ends the process, also one that comes meanwhile.

    Python drops a signal that comes after `signal.signal` has looked for pending ones and before it has set the action
    (CPython issue 43406), so that the signal has to wait.
    """
    import signal

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def interrupt_again(dropped: "UnraisableHookArgs") -> None:
    """The hook for exceptions that nothing can catch: KeyboardInterrupt in the callback of a weak reference, of which
    each import has some, or in `__del__`. Python would print it, and the command would go on.
    """
    if dropped.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(dropped)
        return
    import _thread

    _thread.start_new_thread(_interrupt_soon, (_thread.get_ident(),))


def _interrupt_soon(thread: int) -> None:
    import signal

    time.sleep(AGAIN_SECONDS)
    signal.pthread_kill(thread, signal.SIGINT)


if __name__ == "__main__":
    main()
