"""The program `trainyard`, which `make install` puts on PATH. Ctrl-C ends it without a traceback."""

import signal


def main() -> None:
    """Run a command. The command replaces this process."""
    try:
        # trainyard/bin/trainyard starts Python with Ctrl-C blocked.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        from trainyard.launcher import launch

        launch()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
