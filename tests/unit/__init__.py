"""Tests that need no Pulumi CLI and no running cluster. A few run other programs, such as git and make."""
