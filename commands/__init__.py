"""Commands of `trainyard` and of the make targets."""

from setup.interrupted import install

install()
