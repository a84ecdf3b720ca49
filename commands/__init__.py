"""What the make targets run."""

from setup.interrupted import install

install()
