"""The log evidence of a mixture, used to choose the number of states.

The ELBO treats the users' states as independent of the parameters. If states overlap, it is too
low, and the gap grows with the number of states, so a smaller number of states would be chosen.
Laplace's method at the same maximum uses the observed information I (Louis 1982); the ELBO uses
the information of labelled rewards:

    log p(rewards) = ELBO + 1/2 log(det I_labelled / det I_observed) - centre

The last term is the same correction for the mean m_a of the pooled prior, which is estimated from
the same log. With a prior on m_a worth one reward, and n[s, a] rewards of a state,

    centre = 1/2 sum_a d log(1 + sum_s kappa n[s, a] / (kappa + n[s, a])),

with d the number of free parameters of an action. Without this term a model of one state would pay
no penalty for its means, because they equal m_a. If states do not overlap, the first correction
vanishes. The S! permutations of the states are not counted, because that would reward states that
are identical.
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
