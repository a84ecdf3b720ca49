"""Set-up of this machine for Trainyard: pinned tools, built once into a cache, and images for the local cluster."""

from setup.interrupted import install

install()
