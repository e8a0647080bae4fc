"""Engines that fold learners over the users of a log: in memory, out of core, or on Spark."""
