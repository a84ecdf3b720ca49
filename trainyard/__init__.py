"""The program `trainyard`. An interrupt ends it without a traceback, also while it still imports."""


def main() -> None:
    """Run a command. This process becomes that of the command."""
    try:
        from trainyard.launcher import launch

        launch()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
