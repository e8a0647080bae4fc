"""The log evidence of a mixture, by which the number of states is chosen.

The ELBO takes the users' states as independent of the parameters. Where states overlap it is too
low, and the more so the more states there are: the true number loses to a smaller one. Laplace's
method at the same maximum has the observed information I (Louis 1982) where the ELBO has that of
labelled rewards:

    log p(rewards) = ELBO + 1/2 log(det I_labelled / det I_observed) - centre

The last term is the same correction for the mean m_a of the pooled prior, which is estimated from
the same log. With a prior of its own worth one reward, and n[s, a] rewards of a state,

    centre = 1/2 sum_a d log(1 + sum_s kappa n[s, a] / (kappa + n[s, a])),

d the free parameters of an action. Without it, one state would pay nothing for its means: they are
the centre. Where states are told apart without doubt the first correction vanishes. The S! orders
of the states are not counted: states that are all alike would gain by them.
"""

from __future__ import annotations

import numpy as np

from latentbandits.learning.arms.families.family import Family
from latentbandits.learning.arms.information import Observed


def log_evidence(family: Family, elbo: float, information: Observed) -> float:
    """Return the log evidence of a mixture with this ELBO and this observed information."""
    kappa, n = information.strength, information.counts
    known = 1.0 + (kappa * n / (kappa + n)).sum(axis=0)
    centre = 0.5 * (family.n_statistics - 1) * float(np.log(known).sum())
    return elbo + information.missing - centre
