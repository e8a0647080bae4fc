"""Decide from played users whether the model is worth using, and with which policy.

Replay (`replay.py`) has real rewards but is noisy: it separates bad policies from good, but not two
good ones. Simulation from the model has little noise, but assumes that the model is right. So the
tried policy is the best one under simulation among the policies that are at most two paired
standard errors below the best in replay. Among almost equally good policies, the one with the
largest reward in the first rounds is chosen: users may leave early, and the model may be wrong
about later gains. A policy that loses reward to exploration in its first rounds is left out if
there is another one.

Popularity is recommended instead where the model earns less in replay, or does not predict held-out
rewards well enough to be acted on (`report.doubts`).

The policy is chosen on one half of the held-out users; the verdict is about the other half. If
these are few, further users are played by models that are learned without them in turn
(`fitting.py`), and count for the verdict too. `tournament.py` plays the policies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from latentbandits.learning.assess import replay as replays
from latentbandits.learning.assess.replay import SINGLE_ACTIONS, Playing, Replay
from latentbandits.learning.learners import CLEAR
from latentbandits.report.report import Estimate
from latentbandits.simulation.tune import least_exploring

Verdict = Literal["helps", "harms", "no difference", "cannot tell"]

UNIFORM = "uniform"
POPULARITY = "popularity"

UNJUDGED = "mmGreedy"
"""The policy that is recommended if nothing could be replayed or simulated."""

UNKNOWN_ROUNDS = 20
"""The rounds of a simulated session if users have too few rows to be replayed."""

ALIKE = 0.06
"""Relative excess over the least simulated regret that a policy with better first rounds may
have."""

FIRST_ROUNDS, MOST_LOST = 10, 0.04
"""A policy that under simulation loses a larger share of popularity's reward in the first rounds
is not recommended if there is another one. The tolerated true loss is 8%, and simulated losses
are too small: on click problems, true losses were up to 4 points above simulated ones of 6%."""

LEVEL = 0.95
"""Level of the interval that the verdict depends on."""

TOLERATED, LEAST_TOLERATED = 0.1, 0.01
"""A loss that makes no difference: this share of popularity's lead over uniform choices, and at
least this share of a reward's standard deviation."""

CAVEAT = (
    "The held-out rows were chosen by whoever produced the log: replay says how well a policy "
    "orders what users were shown, not what it would earn on actions that nobody was shown."
)


@dataclass(frozen=True, eq=False)
class Simulated:
    """Users drawn from the model; empty where nothing was simulated."""

    regret: Mapping[str, Estimate]  # over `rounds`
    behind: Mapping[str, Estimate]  # regret less the least one, paired by user
    lost: Mapping[str, float]  # loss in the first rounds, as a share of popularity's reward
    rounds: int = UNKNOWN_ROUNDS
    replacement: bool = True  # whether an action could be chosen again
    gain: Estimate | None = None  # a round, of the policy that is preferred; None: not simulated

    @property
    def no_gain(self) -> bool:
        """Whether the model itself expects no clear gain of the policy over popularity."""
        return self.gain is not None and self.gain.mean <= CLEAR * self.gain.stderr


NOT_SIMULATED = Simulated({}, {}, {})


class Lead(NamedTuple):
    """The reward of a policy minus the reward of popularity, and the resulting verdict."""

    estimate: Estimate
    low: float  # ends of the 95% interval
    high: float
    tolerated: float  # a loss that makes no difference
    n_users: int

    @property
    def verdict(self) -> Verdict:
        """Say what the interval proves; below 30 users it proves nothing.

        >>> Lead(Estimate(0.01, 0.01), -0.01, 0.03, tolerated=0.02, n_users=500).verdict
        'no difference'
        """
        if self.n_users < replays.FEWEST_USERS:
            return "cannot tell"
        if self.low > 0:
            return "helps"
        if self.high < 0:
            return "harms"
        return "no difference" if self.low > -self.tolerated else "cannot tell"

    @property
    def users_needed(self) -> int:
        """The number of users at which this mean would be decided, if errors fall with its root.

        The verdict is then "no difference" or "harms", whichever comes first.

        >>> Lead(Estimate(0.0, 0.1), -0.2, 0.2, tolerated=0.1, n_users=50).users_needed
        200
        """
        mean = self.estimate.mean
        half_width = max(self.high - mean, 0.0)
        decided_by = max(mean + self.tolerated, -mean)
        least = replays.FEWEST_USERS
        if half_width == 0 or decided_by <= 0:
            return least
        return max(least, math.ceil(self.n_users * (half_width / decided_by) ** 2))


@dataclass(frozen=True, eq=False)
class Judgement:
    """The outcome of replay and simulation; `report()` is its form in report.json."""

    replay: Replay
    candidates: tuple[str, ...]  # policies on the model that can be recommended
    simulated: Simulated
    value_of_state: float  # gain per round of knowing the state over the best average action
    reward_sd: float = 0.0  # of a reward of the log
    doubts: tuple[str, ...] = ()  # why predictions of the model are not to be acted on
    choosing: Replay | None = None  # of the users by whom the policy is chosen; None: `replay`
    separate: bool = False  # whether a reward tells about its own action only: arms of one state
    further: tuple[Replay, ...] = ()  # of the judged policy, by models learned without these users
    playing: Playing = SINGLE_ACTIONS

    @property
    def horizon(self) -> int:
        return self.replay.horizons[-1]

    @property
    def _chooser(self) -> Replay:
        return self.replay if self.choosing is None else self.choosing

    @property
    def best(self) -> str:
        """The candidate, or popularity, with the largest reward in replay."""
        return self._largest((*self.candidates, POPULARITY))

    @property
    def admitted(self) -> tuple[str, ...]:
        """The candidates that replay does not veto: not clearly below the best."""
        best, replay = self.best, self._chooser
        return tuple(
            name for name in self.candidates if not _clearly_below(replay.lead(name, best))
        )

    @property
    def preferred(self) -> str:
        """The policy with the least regret under simulation among all that replay admits.

        Policies whose first rounds are clearly below popularity, in replay or under simulation,
        are left out if others remain. Then only policies with a regret within `ALIKE` of the least
        remain, then only policies with the smallest loss in their first rounds, rounded to a
        percent of popularity's reward. Among these `tune`'s rule chooses the best policy, or one
        that explores less.

        If a reward only informs about its action, simulation is not relied on: such a model is
        learned if users do not fall into kinds, or if the log was too small to show kinds. The
        value of exploring is then unknown, and must show in replay.

        If this policy does not clearly gain in simulation, popularity is preferred: replay offers
        few actions, among which states can matter although they share the best action of all.
        """
        return POPULARITY if self.simulated.no_gain else self._favoured

    @property
    def _favoured(self) -> str:
        if not self.admitted:
            return POPULARITY
        if self.separate and UNJUDGED in self.admitted:
            return self._best_proven()
        steady = [name for name in self.admitted if not self._falls_short(name)] or self.admitted
        cheap = [name for name in steady if self.simulated.lost.get(name, 0.0) <= MOST_LOST]
        return self._best_of(cheap or steady)

    @property
    def recommended(self) -> str:
        """The preferred policy if the model has proven itself, else popularity."""
        return POPULARITY if self.why_popularity else self.preferred

    @property
    def why_popularity(self) -> str:
        """The reason why popularity is recommended; empty if a policy on the model is."""
        if self.lead.estimate.mean < 0 or self._favoured == POPULARITY:
            return "the model's policies earn less than the best average action in replay"
        if self.simulated.no_gain:
            return f"in simulation the model itself expects no clear gain ({self.simulated.gain:+})"
        if self.doubts:
            return self.doubts[0]
        return ""

    def _best_proven(self) -> str:
        """The best policy in replay if it is clearly above `UNJUDGED`, which explores least."""
        best = self._largest(self.admitted)
        lead = self._chooser.lead(best, UNJUDGED)
        return best if lead.mean > CLEAR * lead.stderr else UNJUDGED

    def _falls_short(self, name: str) -> bool:
        """Return whether the policy is clearly below popularity in replay at some horizon."""
        replay = self._chooser
        return any(_clearly_below(replay.difference(name, POPULARITY, h)) for h in replay.horizons)

    def _largest(self, names: Sequence[str]) -> str:
        replay = self._chooser
        return max(names, key=lambda name: replay.lead(name, POPULARITY).mean)

    def _best_of(self, names: Sequence[str]) -> str:
        behind, lost = self.simulated.behind, self.simulated.lost
        known = [name for name in names if name in behind]
        if not known:
            return self._largest(names)
        first = min(known, key=lambda name: behind[name].mean)
        most = behind[first].mean + ALIKE * self.simulated.regret[first].mean
        close = [name for name in known if behind[name].mean <= most]
        percent = {name: round(lost.get(name, 0.0), 2) for name in close}
        calm = [name for name in close if percent[name] == min(percent.values())]
        return least_exploring({name: self.simulated.regret[name].mean for name in calm})

    @property
    def judged(self) -> str:
        """The policy that the verdict is about: the preferred one, else the model's best."""
        favoured = self._favoured
        return self._largest(self.candidates) if favoured == POPULARITY else favoured

    @cached_property
    def lead(self) -> Lead:
        """The lead of the judged policy over popularity, with its 95% interval (Student's t)."""
        from scipy.special import stdtrit

        baselines = [name for name in (POPULARITY, UNIFORM) if name in self.replay.rewards]
        replay = self.replay.joined(self.further, [self.judged, *baselines])
        n_users = len(replay.rounds)
        estimate = replay.lead(self.judged, POPULARITY)
        width = float(stdtrit(max(n_users - 1, 1), (1 + LEVEL) / 2)) * estimate.stderr
        tolerated = LEAST_TOLERATED * self.reward_sd
        if UNIFORM in baselines:
            level = replay.lead(POPULARITY, UNIFORM).mean
            tolerated = max(tolerated, TOLERATED * level)
        return Lead(estimate, estimate.mean - width, estimate.mean + width, tolerated, n_users)

    @property
    def verdict(self) -> Verdict:
        """Say what the interval proves; a gain that the model does not expect does not count."""
        verdict = self.lead.verdict
        return "no difference" if verdict == "helps" and self.simulated.no_gain else verdict

    @property
    def sentence(self) -> str:
        """The verdict as a sentence."""
        lead = self.lead
        users = f"{lead.n_users:,} held-out user" + ("" if lead.n_users == 1 else "s")
        one, best = "round", "action"
        if self.playing.lists is not None:
            one, best = "list", f"{self.playing.length} actions"
        later = "" if self.replay.later is None else f" and later {one}s"
        compared = (
            f"{self.judged} earns {lead.estimate:+} a {one} compared with showing the best average "
            f"{best} (95% interval {lead.low:+.3g} to {lead.high:+.3g}; {one}s 1-{self.horizon}"
            f"{later} of {users})"
        )
        use, why = f"Use {self.recommended}", self.why_popularity
        advice = f"{use}: {why}." if why else f"{use}."
        if self.verdict == "helps":
            return f"The model helps: {compared}. {advice}"
        if self.verdict == "harms":
            return f"The model harms: {compared}. Use {self.recommended}, or learn from more data."
        if self.verdict == "no difference":
            if lead.verdict == "helps":
                return f"No difference outside replay, in which {compared}. {advice}"
            return (
                f"No difference: {compared}; a loss of {lead.tolerated:.3g} would not matter. "
                f"{advice}"
            )
        return (
            f"Cannot tell whether the model helps: {compared}; about {lead.users_needed:,} such "
            f"users would be needed. {advice}"
        )

    def report(self) -> dict[str, Any]:
        """Return the judgement as plain data for report.json."""
        curves = []
        for name in self.replay.rewards:
            mean, stderr = self.replay.curve(name)
            curves.append({"policy": name, "reward": mean.tolist(), "stderr": stderr.tolist()})
        simulated = [
            {
                "policy": name,
                "regret": regret.mean,
                "stderr": regret.stderr,
                "lost_first": self.simulated.lost.get(name),
            }
            for name, regret in self.simulated.regret.items()
        ]
        gain = self.simulated.gain
        return _report(
            self.verdict, self.sentence, self.recommended, self.why_popularity, self.playing
        ) | {
            "judged_policy": self.judged,
            "lead": {
                "mean": self.lead.estimate.mean,
                "low": self.lead.low,
                "high": self.lead.high,
                "tolerated": self.lead.tolerated,
                "users": self.lead.n_users,
                "users_needed": self.lead.users_needed,
            },
            "admitted": list(self.admitted),
            "horizon": self.horizon,
            "replay": self.replay.rows(POPULARITY),
            "curves": curves,
            "simulated": simulated,
            "simulated_rounds": self.simulated.rounds,
            "simulated_replacement": self.simulated.replacement,
            "simulated_gain": None if gain is None else {"mean": gain.mean, "stderr": gain.stderr},
            "value_of_state": self.value_of_state,
        }


def _report(
    verdict: Verdict, sentence: str, recommended: str, why_popularity: str, playing: Playing
) -> dict[str, Any]:
    """Return a judgement without a replay as plain data for report.json."""
    return {
        "verdict": verdict,
        "sentence": sentence,
        "recommended_policy": recommended,
        "why_popularity": why_popularity or None,
        "judged_policy": None,
        "lead": None,
        "admitted": [],
        "horizon": 0,
        "length": None if playing.lists is None else playing.length,
        "replay": [],
        "curves": [],
        "simulated": [],
        "simulated_rounds": UNKNOWN_ROUNDS,
        "simulated_replacement": True,
        "simulated_gain": None,
        "value_of_state": None,
        "offered": playing.offered,
        "caveat": CAVEAT,
    }


TOO_FEW = (
    "fewer than two held-out users have three rows, so that nothing could be replayed; "
    f"{replays.FEWEST_USERS} such users would be needed among the held-out ones"
)
TOO_FEW_LISTS = (
    "fewer than two held-out users have rows for two lists and a choice between actions, so that "
    f"nothing could be replayed; {replays.FEWEST_USERS} such users would be needed among the "
    "held-out ones"
)
"""Reasons why nothing is replayed."""


def nothing_replayed(recommended: str, doubt: str, playing: Playing) -> dict[str, Any]:
    """Return the report for the case that nothing could be replayed."""
    why = TOO_FEW if playing.lists is None else TOO_FEW_LISTS
    advice = f"Use {recommended}: {doubt}." if doubt else f"Use {recommended}."
    sentence = f"Cannot tell whether the model helps: {why}. {advice}"
    return _report("cannot tell", sentence, recommended, doubt, playing)


def _clearly_below(difference: Estimate) -> bool:
    return bool(difference.mean < -CLEAR * difference.stderr)
