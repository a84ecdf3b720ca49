"""Tests of code that needs no Pulumi, no cluster and no other program."""
