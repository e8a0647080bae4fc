"""The command line: one file per command."""

from latentbandits.cli.main import main

__all__ = ["main"]
