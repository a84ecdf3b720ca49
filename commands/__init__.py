"""Commands behind the make targets."""

from setup.interrupted import install

install()
