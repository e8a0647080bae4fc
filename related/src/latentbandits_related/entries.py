"""The entries of the policy registry: the entry points of this package name them.

A builder is a text, "module:name", so that a policy is imported when it is first used.
"""

from latentbandits.policies.registry import Entry


def _session(name: str, builder: str, source: str, summary: str) -> Entry:
    """Return the entry of a policy of one session, which `simulate` plays only if it is named."""
    build = f"latentbandits_related.{builder}"
    return Entry(name, build, source=source, summary=summary, on_request=True)


def _population(name: str, builder: str, source: str, summary: str) -> Entry:
    """Return the entry of a policy that learns across the users of a population."""
    build = f"latentbandits_related.{builder}"
    return Entry(name, build, "population", source, summary)


# fmt: off
SingleKUCB = _session("SingleKUCB", "structured:SingleKUCB", "after Maillard & Mannor 2014",
    "optimism over the states that every action's average allows")
UCBS = _session("UCBS", "structured:UCBS", "Lattimore & Munos 2014",
    "the largest mean reward over the states that are allowed")
UCBC = _session("UCBC", "structured:UCBC", "Gupta et al. 2021",
    "UCB among the actions that are best in some allowed state")
TSC = _session("TSC", "structured:TSC", "Gupta et al. 2021",
    "Thompson sampling among the actions that are best in some allowed state")
PolicyReuse = _session("PolicyReuse", "policy_reuse:PolicyReuse",
    "Rosman, Hawasly & Ramamoorthy 2016",
    "choose among the states' best actions by information or improvement")
LatentOrderTS = _session("LatentOrderTS", "latent_order:LatentOrderTS",
    "after Carlsson, Mwai & Johansson 2026",
    "Thompson sampling of the state by its order of actions only")
ProBALL = _session("ProBALL", "proball:build_proball", "after Kausik, Tan & Tewari 2025",
    "LinUCB in the subspace of a prior that was learned offline")
Rank1Elim = _session("Rank1Elim", "rank1:build_rank1elim", "Katariya et al. 2017a",
    "eliminate rows and columns; actions are pairs of them")
Rank1ElimKL = _session("Rank1ElimKL", "rank1:build_rank1elimkl", "Katariya et al. 2017b",
    "Rank1Elim with bounds for clicks")
ParticleMF = _population("ParticleMF", "particle_mf:ParticleMF", "Kawale et al. 2015",
    "Thompson sampling of a matrix factorisation by particles, weights corrected")
NMFBandit = _population("NMFBandit", "nmf:NMFBandit", "after Sen et al. 2017",
    "epsilon-greedy on a non-negative factorisation of users and items")
COFIBA = _population("COFIBA", "cofiba:COFIBA", "Li, Karatzoglou & Gentile 2016",
    "LinUCB on clusters of users for every cluster of items")
CLUB = _population("CLUB", "club:CLUB", "Gentile, Li & Zappella 2014",
    "LinUCB on clusters of users, found by cutting a graph")
SCLUB = _population("SCLUB", "sclub:SCLUB", "Li, Chen, Li & Leung 2019",
    "LinUCB on sets of users that split and merge")
DynUCB = _population("DynUCB", "dynucb:DynUCB", "Nguyen & Lauw 2014",
    "LinUCB on k clusters of users, who move to the nearest")
MetaTS = _population("MetaTS", "meta:MetaTS", "Kveton et al. 2021",
    "HierTS whose mean is drawn once for every user")
AdaTS = _population("AdaTS", "meta:AdaTS", "Basu et al. 2021",
    "HierTS whose users keep the prior of their start")
