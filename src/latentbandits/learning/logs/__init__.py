"""Logs to numbered rows: formats, columns, users, summaries."""
