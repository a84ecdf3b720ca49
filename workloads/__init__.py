"""Job descriptions and their renderers. This file imports nothing, so that modules without Pulumi stay without it."""
