"""Platforms that jobs run on. This module imports nothing, so that pure submodules do not import Pulumi."""
