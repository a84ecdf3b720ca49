"""Platforms that jobs run on. This file imports nothing, so submodules that do not need Pulumi do not load it."""
