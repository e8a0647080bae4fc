"""Claims of the paper about its synthetic experiment (Section 5.1), and further ones."""

from latentbandits.experiments.claims import Alike, Checkable, Degrades, Order, Share

GOOD, BAD = "sigma0=0.05", "sigma0=0.2"

CLAIMS: tuple[Checkable, ...] = (
    Order("S1", "a good model: mUCB and mTS beat the baselines that have none",
          GOOD, "regret", ("mUCB", "mTS"), ("UCB1", "TS")),
    Degrades("S2", "mUCB and mTS degrade with a bad model", GOOD, BAD, ("mUCB", "mTS")),
    Order("S3", "a bad model: mmTS beats mTS", BAD, "regret", ("mmTS",), ("mTS",)),
    # 0.02 of the [0, 1] that means are drawn from is about the width of a line in the figure.
    Alike("S4", "mmUCB performs the same as mUCB", "mmUCB", "mUCB", tolerance=0.02),
    Order("S5", "EXP4 uses a good model less well than mUCB and mTS",
          GOOD, "regret", ("mUCB", "mTS"), ("EXP4",)),
    Order("S6", "EXP4 uses a bad model less well than mUCB and mTS",
          BAD, "regret", ("mUCB", "mTS"), ("EXP4",)),
    Order("S7", "the worst 10% of runs, a bad model: the baselines beat mUCB and mTS",
          BAD, "worst_decile_reward", ("UCB1", "TS"), ("mUCB", "mTS")),
    Order("S8", "the worst 10% of runs, a bad model: mmTS beats the baselines",
          BAD, "worst_decile_reward", ("mmTS",), ("UCB1", "TS")),
    Share("B1", "beyond the paper, a bad model: mmIDS beats mmTS", BAD, "mmIDS", "mmTS", 0.8),
    Share("B2", "beyond the paper, a good model: mmIDS beats mmTS", GOOD, "mmIDS", "mmTS", 0.9),
)  # fmt: skip
