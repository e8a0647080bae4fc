"""A benchmark of policies that learn within a session: `python -m evidence bench`.

`problem.py` says what a problem is, `problems/` has them, `protocol.py` learns and plays,
`contestants.py` makes players of policies' names and of your own classes.
"""

from evidence.bench.experiment import BenchExperiment

__all__ = ["BenchExperiment"]
