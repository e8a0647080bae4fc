"""Engines that sum a log: in memory, out of core, or on Spark. Learning is a fold over users."""
