"""Commands of `trainyard` and of the make targets. Importing this package installs set-up's hook for Ctrl-C."""

from setup import install

install()
