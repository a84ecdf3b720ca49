"""Commands of `trainyard` and of the make targets."""

from setup import install

install()
