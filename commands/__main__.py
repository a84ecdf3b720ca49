"""`python -m commands`: the command line of the make targets."""

import sys

from commands.cli import main

sys.exit(main(sys.argv[1:]))
