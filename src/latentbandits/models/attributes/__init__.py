"""Attributes of users, rows and items: the encoding of named columns, gates and regressions."""
