"""`python -m kraft` and the script `kraft`: the command, which Ctrl-C ends quietly at any moment."""


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
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        from kraft.cli.main import main as command

        try:
            if is_heard:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            command()
        finally:
            if is_heard:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:  # in the few steps between those that are guarded otherwise
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
