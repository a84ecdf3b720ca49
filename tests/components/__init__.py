"""Tests of the components and of the whole program against Pulumi mocks."""
