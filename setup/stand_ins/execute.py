"""Run a Pulumi program in a separate process with the program's Python. This file imports no modules of Trainyard."""

import argparse
import asyncio
import gc
import logging
import os
import runpy
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Imports create almost no garbage, but garbage collection takes a tenth of an import's time.
gc.disable()
try:
    import pulumi
    import pulumi.runtime
except ImportError:
    traceback.print_exc()
    print("\nThe Pulumi SDK is not installed in this Python. Install the program's requirements.txt.", file=sys.stderr)
    sys.exit(1)
gc.enable()

ERROR_WAS_PRINTED = 32
"""Exit code that tells the language host not to print the error again."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line that the language host passes."""
    parser = argparse.ArgumentParser()
    for name in ("monitor", "engine", "project", "root_directory", "stack", "pwd", "organization"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--dry_run", default="false")
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("program")
    parser.add_argument("arguments", nargs="*")
    return parser.parse_args(arguments)


def configure(options: argparse.Namespace) -> None:
    """Pass the configuration and the addresses of this deployment to the SDK."""
    pulumi.runtime.set_all_config(pulumi.runtime.get_config_env(), pulumi.runtime.get_config_secret_keys_env())
    pulumi.runtime.configure(
        pulumi.runtime.Settings(
            monitor=options.monitor,
            engine=options.engine,
            project=options.project,
            stack=options.stack,
            parallel=options.parallel,
            dry_run=options.dry_run == "true",
            organization=options.organization,
            root_directory=options.root_directory,
        )
    )


def program_traceback(error: BaseException, program: Path) -> str:
    """Format the error from the first frame in the program's main file. Earlier frames do not help its author."""
    frames = traceback.extract_tb(error.__traceback__)
    main = program if program.suffix else program / "__main__.py"
    own = [index for index, frame in enumerate(frames) if Path(frame.filename).resolve() == main]
    formatted = traceback.TracebackException.from_exception(error)
    if own:
        formatted.stack = traceback.StackSummary.from_list(frames[own[0] :])
    return "".join(formatted.format())


def run(program: str) -> int:
    """Run the program in a stack. Log its error and return the exit code."""
    location = Path(program).resolve()
    if location.is_dir() and not (location / "__main__.py").exists():
        pulumi.log.error(f"unable to find main python program `__main__.py` in `{location}`")
        return ERROR_WAS_PRINTED
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    executor = ThreadPoolExecutor(max_workers=max(pulumi.runtime.settings.SETTINGS.parallel or 1, 1) * 4)
    loop.set_default_executor(executor)
    # A program that fails leaves futures that no code awaits. asyncio's messages about them would hide the error.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)

    def run_program() -> None:
        runpy.run_path(program, run_name="__main__")

    try:
        loop.run_until_complete(pulumi.runtime.run_in_stack(run_program))
    except pulumi.RunError as error:
        pulumi.log.error(str(error))
        return 1
    except Exception as error:
        pulumi.log.error("Program failed with an unhandled exception:\n" + program_traceback(error, location))
        return ERROR_WAS_PRINTED
    finally:
        executor.shutdown(wait=True)
        loop.close()
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def main() -> int:
    """Run the program on the command line."""
    options = parse(sys.argv[1:])
    configure(options)
    sys.argv = [options.program, *options.arguments]
    if options.pwd:
        os.chdir(options.pwd)
    return run(options.program)


if __name__ == "__main__":
    sys.exit(main())
