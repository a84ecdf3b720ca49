"""Platforms that jobs run on. This module imports nothing, so that pure modules stay pure."""
