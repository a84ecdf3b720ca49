"""Makes this machine able to run Trainyard: pinned tools, built once into a cache, and images for the local cluster."""
