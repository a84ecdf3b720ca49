"""Job descriptions and their renderers. This file imports nothing, so that pure modules stay pure."""
