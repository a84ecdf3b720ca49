"""Tests of what needs no Pulumi, no cluster and no other program."""
