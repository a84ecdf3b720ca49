"""Makes this machine able to run Trainyard: pinned tools, built once into a cache, and images for the local cluster."""

from setup.interrupted import install

install()
