"""The program `trainyard`. Ctrl-C ends it without a traceback, even during imports."""

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
