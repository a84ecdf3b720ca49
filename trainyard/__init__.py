"""The program `trainyard`. An interrupt ends it without a traceback, also while it still imports."""

import signal


def main() -> None:
    """Run a command. This process becomes that of the command."""
    try:
        # trainyard/bin/trainyard starts Python with Ctrl-C blocked.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        from trainyard.launcher import launch

        launch()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
