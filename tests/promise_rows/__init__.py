"""Rows of the table of promises, by document: each has a quotation and the tests that fail if the promise breaks."""
