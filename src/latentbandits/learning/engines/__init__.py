"""Where a log is summed: in memory, out of core, or on Spark. Learning is a fold over users."""
