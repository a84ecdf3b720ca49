"""What holds for every test: signals have their usual meaning, however the tests were started."""

import signal

# A process in the background of a shell ignores Ctrl-C, and so does all that it starts; some tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)
