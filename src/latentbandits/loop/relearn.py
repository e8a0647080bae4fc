"""One run of the loop: read the log, fit, judge on held-out sessions, activate or keep."""

from __future__ import annotations

import json
import math
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from latentbandits.client import Client
from latentbandits.client_protocol import NoAnswerError, ServiceError
from latentbandits.evaluation.intervals import (
    TIGHTEST_AT,
    Interval,
    check_level,
    compare_groups,
    level_of_candidate,
)
from latentbandits.evaluation.reading import read_decisions
from latentbandits.learning.fit_options import FitOptions
from latentbandits.learning.fitting import Fit, fit
from latentbandits.learning.logs.tables import column_names
from latentbandits.learning.save import save_fit
from latentbandits.loop import data
from latentbandits.loop.caller_features import encode_log, keep_names
from latentbandits.loop.kept_log import KeptLog, Logged, Source
from latentbandits.loop.promotion import Side, Verdict, judge
from latentbandits.loop.records import Records, Run
from latentbandits.models import artefacts
from latentbandits.models.arms import start
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.clicks import ClickModel, Each, as_click_model
from latentbandits.models.growing import add_average
from latentbandits.models.protocol import with_defaults
from latentbandits.owned_tempdir import own_folder, remove_left_overs
from latentbandits.policies.registry import PolicySpec, build, inputs_of, parse
from latentbandits.report.report import Progress
from latentbandits.serving.engine.model_rows import notes, read_artefact, unpack
from latentbandits.serving.http.messages import Models, Swap
from latentbandits.serving.records import FALLBACK, ModelRow, RequestedMode
from latentbandits.serving.settings import MAIN as MAIN_GROUP
from latentbandits.serving.settings import TRIAL

PREFIX = "relearned-"
_TRAINING = "training-"

LEAST_SESSIONS = 100
"""Sessions with 2 rewards or more from which a start model's first successor is learned. The next
one waits for as many new sessions as the one before was learned from: phases that grow, as those of
the policy `Phased`."""
POOL_GROWTH = 1.1
"""Factor by which the rewards must have grown before they are pooled again."""
TRIAL_POLICY = "mmBayesUCB"
"""The policy of a model on trial. The log of a start model does not say which one is best. This one
learns most about the actions that the log has few rewards of, among those that lose little."""
LEAST_TRIED, TRIAL_TIGHTEST_AT = 20, 500
"""Sessions with each model before the one on trial can take over, and those of both near which the
confidence sequence of the trial is tightest."""
LEAST_DROPPED, DROPPED_BELOW = 10, -1.0
"""Sessions with each model, and standard errors of the gain, below which a model is taken off
trial. It needs proof to take over, but none to be dropped: more of its sessions would be likely to
lose, and the loop learns another one."""


ASKED = (
    "policy", "with_logs", "margin", "compared", "level", "tightest_at", "held_out", "unrewarded",
    "since", "half_life", "dry_run", "seed",
)  # fmt: skip
"""The settings that a verdict depends on."""


FIT_OPTIONS = FitOptions(bootstrap=0)


@dataclass(frozen=True)
class LoopSettings:
    """Settings of the loop; the command line documents them."""

    work: Path
    models: Path  # the service's models folder
    policy: str | None = None  # None: the candidate's recommended one
    with_logs: tuple[str, ...] = ()
    margin: float = 0.0
    compared: float = 0.5  # share of a typical session without which there is no decision
    level: float = 0.95
    tightest_at: int = TIGHTEST_AT  # sessions near which confidence sequences are tightest
    held_out: float = 0.3
    unrewarded: float | None = None
    since: timedelta | None = None
    half_life: timedelta | None = None
    keep: int = 5
    dry_run: bool = False
    fit_options: FitOptions = FIT_OPTIONS  # its columns are those of `with_logs`
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse values that would only fail after the log was read and a model was fitted."""
        if not math.isfinite(self.margin):
            raise ValueError(f"the margin must be a finite number; got {self.margin}")
        if self.unrewarded is not None and not math.isfinite(self.unrewarded):
            raise ValueError(f"the unrewarded value must be a finite number; got {self.unrewarded}")
        check_level(self.level)
        if self.tightest_at < 1:
            raise ValueError(
                f"the sequence must be tightest at 1 session or more; got {self.tightest_at}"
            )
        if not 0 < self.compared <= 1:
            raise ValueError(f"the compared share must be above 0, at most 1; got {self.compared}")
        if not 0 < self.held_out < 1:
            raise ValueError(f"the held-out share must lie between 0 and 1; got {self.held_out}")
        if self.policy is not None:
            parse(self.policy)

    def options(self) -> dict[str, Any]:
        """Return the settings that a verdict depends on, as JSON values."""
        values = {name: getattr(self, name) for name in ASKED}
        options: dict[str, Any] = json.loads(json.dumps(values, default=timedelta.total_seconds))
        return options


@dataclass(frozen=True, eq=False)
class Model:
    """A model with its catalogue and the notes of its fit."""

    id: str
    model: Any
    catalogue: Catalogue | None
    notes: dict[str, Any]

    @classmethod
    def of(cls, row: ModelRow) -> Model:
        """Return the model of an artefact's files."""
        return cls(row.id, *unpack(row), notes(row))

    @property
    def clicks(self) -> ClickModel:
        """The click model that the model's fit chose for lists."""
        return as_click_model(self.notes.get("click_model", Each.name))

    @property
    def ids(self) -> tuple[str, ...]:
        if self.catalogue is not None:
            return self.catalogue.ids
        return tuple(str(i) for i in range(self.model.n_actions or 0))

    @property
    def brings_features(self) -> bool:
        """Whether requests bring the features of actions: no catalogue has them."""
        takes = with_defaults(self.model).n_features is not None
        return takes and (self.catalogue is None or self.catalogue.features is None)

    def with_actions_of(self, other: Model) -> Model:
        """Return this model with the missing actions of `other` added.

        The service does the same when it activates a model. A model whose kind cannot take new
        actions is returned unchanged.
        """
        new = [name for name in other.ids if name not in self.ids]
        if not new or other.brings_features:
            return self
        try:
            model, catalogue = add_average(self.model, self.catalogue or Catalogue(self.ids), new)
        except ValueError:
            return self
        return replace(self, model=model, catalogue=catalogue)


class Relearner:
    """Runs the loop in a work folder. A crash at any point leaves the service as it was."""

    def __init__(
        self,
        settings: LoopSettings,
        service: Client,
        source: Source,
        learner: Callable[..., Fit] = fit,
    ) -> None:
        """Learn candidates by `learner`, which takes what `fit` takes; tests plant broken ones."""
        self.settings = settings
        self.records = Records(settings.work)
        self._service = service
        self._source = source
        self._kept = KeptLog(settings.work)
        self._learn = learner

    def run(self, progress: Progress | None = None) -> Run:
        """Do one run and return its record."""
        begun = time.perf_counter()
        runs = self.records.all()
        self._remove_unfinished(runs)
        run = Run(
            number=runs[-1].number + 1 if runs else 1,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            request_id=f"relearn-{uuid.uuid4()}",
            options=self.settings.options(),
        )
        try:
            run = self._step(run, runs, progress)
        except (ValueError, OSError, ServiceError) as error:
            run = self.records.latest(run)  # with the results before the failure
            run = self.records.finish(run, outcome="failed", why=str(error))
        run = self.records.finish(run, seconds=round(time.perf_counter() - begun, 1))
        self._prune()
        return run

    def _remove_unfinished(self, runs: Sequence[Run]) -> None:
        """Remove the data and partial models of runs that were killed."""
        remove_left_overs(self.settings.work, _TRAINING)
        for run in runs:
            if run.outcome == "planned" and run.candidate_path:
                path = Path(run.candidate_path)
                remove_left_overs(path.parent, f".{path.name}-")

    def _step(self, run: Run, runs: list[Run], progress: Progress | None) -> Run:
        settings = self.settings
        active, models = self._service.active_model(), self._service.models()
        runs = [self._settled(earlier, models.swaps) for earlier in runs]
        current = Model.of(ModelRow(active.id, active.name, active.files))
        versions = _versions(models.swaps, current.id, _pooled(runs))
        logged = self._kept.update(self._source)
        run = self.records.finish(
            run,
            current=current.id,
            current_path=active.name,
            active_since=versions[-1].time,
            cursor=logged.cursor,
        )
        run = self._watch(run, runs, versions[0], logged)
        if run.decision == "roll back":
            return run
        before = next((r for r in reversed(runs) if r.outcome in ("done", "dry run")), None)
        if before is not None and _same_question(before, run):
            why = "the log has not grown since a run with the same options"
            return self.records.finish(run, decision="nothing new", outcome="done", why=why)
        divided = data.divide(
            logged.decisions,
            salt=active.judging_salt,
            share=settings.held_out,
            since=settings.since,
            half_life=settings.half_life,
        )
        counts = divided.counts | {"read": logged.read, "forgotten": logged.forgotten}
        model_ids = {swap.model for swap in versions}
        # The number alone is not unique: another work folder may use the same models folder.
        folder = settings.models / f"{PREFIX}{run.number:06d}-{run.request_id[-8:]}"
        run = self.records.finish(run, data=counts, candidate_path=str(folder))
        if start.NOTE in current.notes or _took_over(runs, model_ids):
            return self._by_trial(run, runs, models, current, model_ids, divided, progress)
        candidate, warnings = self._fit(folder, current, divided.training, progress)
        playing = _policy_of(logged.decisions, model_ids)
        earlier = _judged_against(runs, model_ids, candidate.id)
        verdict = self._judge(earlier, current, candidate, playing, divided.judging)
        run = self.records.finish(
            run,
            candidate=candidate.id,
            verdict=verdict.as_json(),
            warnings=warnings,
            decision="activate" if verdict.activate else "keep",
            why=verdict.reason,
        )
        if not verdict.activate:
            return self.records.finish(run, outcome="done")
        return self._activate(run, path=folder.name)

    def _fit(
        self,
        folder: Path,
        current: Model,
        training: pl.DataFrame,
        progress: Progress | None,
        policy: str | None = None,
    ) -> tuple[Model, list[str]]:
        """Learn a candidate and save it; return it and the warnings of its fit.

        Without a `policy` the fit judges which one is best.
        """
        notes = None if policy is None else {"recommended_policy": policy}
        settings = self.settings
        options = replace(
            settings.fit_options,
            unrewarded=settings.unrewarded,
            earlier=(current.model, current.catalogue),
            seed=settings.seed,
            assess=policy is None,
        )
        columns = ["decision_id", "session", "action", "reward", "time"]
        older = list(settings.with_logs)
        with own_folder(settings.work, _TRAINING) as scratch:
            gap = with_defaults(current.model).session_gap
            if gap is not None and all("time" in column_names(log) for log in older):
                options = replace(options, order="time", session_gap=gap)
            if current.brings_features:
                columns += ["features", "index"]
                options = replace(options, earlier=None, features=["features"])
                older = [
                    encode_log(log, options, current.model, scratch / f"{i}.parquet")
                    for i, log in enumerate(older)
                ]
            path = scratch / "training.parquet"
            training.select(columns).write_parquet(path)
            result = self._learn([*older, str(path)], options, progress=progress)
        if current.brings_features:
            result = keep_names(result, current.model)
        save_fit(result, folder, notes)
        warnings = [str(warning) for warning in result.report.get("warnings", [])]
        return Model.of(read_artefact(folder)), warnings

    def _by_trial(
        self,
        run: Run,
        runs: list[Run],
        models: Models,
        current: Model,
        model_ids: set[str],
        divided: data.Divided,
        progress: Progress | None,
    ) -> Run:
        """Move from a start model to learned ones: pool rewards, try a learned model live, decide.

        The log of a start model soon holds a few actions only, so it cannot judge other models.
        Instead half of the new sessions get the candidate, which takes over once they earn more.
        Rewards under `learned` models are not pooled, because such a model shows an action to the
        users who like it.
        """
        trial = models.swaps[-1] if models.trial is not None else None
        last = next((r for r in reversed(runs) if _has_tried(r)), None)
        if trial is not None and (last is None or last.candidate != trial.model):
            why = f"{trial.model} is on trial, which this loop has not begun: an activation ends it"
            return self.records.finish(run, outcome="done", why=why)
        wanted, since = LEAST_SESSIONS, None
        if last is not None:
            wanted, since = last.data["tried_sessions"], datetime.fromisoformat(last.started)
        missing = max(wanted - data.sessions_with_rewards(divided.training, 2, since), 0)
        waits = "the next run learns another model"
        if missing:
            waits = f"a learned model waits for {missing} more sessions with 2 or more rewards"
        ended = "no learned model is on trial"
        if trial is not None:
            tries = sum(r.current in model_ids and _has_tried(r) for r in runs)
            tried, gain = self._gain(trial, divided.recent, max(tries, 1))
            lost = False
            if gain is not None:
                run = self.records.finish(run, groups=run.groups | {TRIAL: gain._asdict()})
                ended = f"the candidate gains {gain.low:.4g} to {gain.high:.4g} per session"
                lost = gain.value - self.settings.margin < DROPPED_BELOW * gain.stderr
            if tried < LEAST_TRIED and not lost:
                why = f"the trial waits for {LEAST_TRIED} sessions with each model"
                return self.records.finish(run, outcome="done", why=why)
            if gain is not None and gain.low > self.settings.margin:
                why = f"the sessions on trial earn more: {ended}"
                run = self.records.finish(run, decision="activate", candidate=trial.model, why=why)
                return self._activate(run, model=trial.model)
            if missing and not lost:
                why = f"the trial goes on: {ended}; the next candidate waits for {missing} sessions"
                return self.records.finish(run, outcome="done", why=why)
        if start.NOTE in current.notes and (missing or trial is not None):
            learned = [swap.model for swap in models.swaps if swap.mode == "trial"]
            shared = divided.recent.filter(~pl.col("model").is_in(learned))
            rewards = _rewards(current, shared, self.settings.unrewarded)
            if trial is None and len(rewards) < POOL_GROWTH * _pooled_rewards(runs, current.id):
                why = f"the log has too few new rewards to pool; {waits}"
                return self.records.finish(run, decision="nothing new", outcome="done", why=why)
            return self._pool(run, current, rewards, f"{ended}; {waits}")
        if missing == 0:
            return self._try(run, current, divided.training, progress)
        run = self.records.finish(run, why=f"{ended}; {waits}")
        if trial is None:
            return self.records.finish(run, outcome="done")
        return self._activate(run, model=current.id, mode="pinned")

    def _gain(
        self, trial: Swap, decisions: pl.DataFrame, number: int
    ) -> tuple[int, Interval | None]:
        """Return the smaller number of sessions, and the trial's gain per session; None: too few.
        The trial's model is the `number`-th candidate against the current one.
        """
        begun = datetime.fromtimestamp(trial.time, UTC)
        horizon = data.typical_rounds(decisions, begun)
        means = data.live_groups(decisions, begun, horizon, self.settings.unrewarded)
        both = {name: means.get(name) for name in (TRIAL, MAIN_GROUP)}
        tried = min(0 if one is None else one.n_sessions for one in both.values())
        if tried < LEAST_DROPPED:
            return tried, None
        level = level_of_candidate(self.settings.level, number)
        gain = compare_groups(both, TRIAL, level, TRIAL_TIGHTEST_AT)[MAIN_GROUP]
        return tried, Interval(*(horizon * part for part in gain))

    def _try(
        self, run: Run, current: Model, training: pl.DataFrame, progress: Progress | None
    ) -> Run:
        """Learn a candidate, and have half of the new sessions begin with it."""
        counts = run.data | {"tried_sessions": data.sessions_with_rewards(training, 2)}
        folder = Path(run.candidate_path)
        try:
            policy = self.settings.policy or TRIAL_POLICY
            candidate, warnings = self._fit(folder, current, training, progress, policy)
        except ValueError:
            self.records.finish(run, data=counts)  # the next try waits for more sessions
            raise
        run = self.records.finish(
            run,
            data=counts,
            candidate=candidate.id,
            warnings=warnings,
            decision="try",
            why="half of the new sessions begin with a learned model, until it is known whether "
            "they earn more",
        )
        return self._activate(run, path=folder.name, mode="trial")

    def _pool(self, run: Run, current: Model, rewards: pl.DataFrame, waits: str) -> Run:
        """Activate the start model with the rewards of all users in its prior; that ends a trial.

        Open sessions keep the model that they began with, so that none of their rewards counts
        twice. A new session plays Thompson sampling on the pooled rewards.
        """
        folder = Path(run.candidate_path)
        with artefacts.replacing(folder) as files:
            artefacts.write(
                _pooled_model(current, rewards), files, current.catalogue, current.notes
            )
        run = self.records.finish(
            run,
            data=run.data | {"pooled_rewards": len(rewards)},
            decision="pool",
            candidate=read_artefact(folder).id,
            why=f"the rewards of all users were pooled; {waits}",
        )
        return self._activate(run, path=folder.name, mode="pinned")

    def _judge(
        self,
        earlier: list[Run],
        current: Model,
        candidate: Model,
        playing: str,
        judging: pl.DataFrame,
    ) -> Verdict:
        settings = self.settings
        policy = settings.policy or candidate.notes.get("recommended_policy") or playing
        policy = _exploring_like(playing, policy)
        candidate = candidate.with_actions_of(current)
        judged = _known_to_both(judging, current, candidate)
        if judged.is_empty():
            raise ValueError(
                "no held-out session can be judged on: "
                f"{judging['session'].n_unique()} have usable propensities, none of them "
                "with actions that both models know. Serve with --explore 0.1, and wait for more "
                "sessions"
            )
        unrewarded = settings.unrewarded
        base = _side(current, playing, judged, current.clicks, unrewarded)
        # Both sides see the same rows: those that the served click model observed.
        same = candidate.clicks.unrolled == current.clicks.unrolled
        clicks = candidate.clicks if same else current.clicks
        other = _side(candidate, policy, judged, clicks, unrewarded)
        return judge(
            base,
            other,
            users=data.users_of(base.log.session_ids or ()),
            margin=settings.margin,
            compared=settings.compared,
            level=settings.level,
            number=1 + len({run.candidate for run in earlier}),
            tightest_at=next(
                (run.verdict["tightest_at"] for run in earlier if "tightest_at" in run.verdict),
                settings.tightest_at,
            ),
            unrewarded=settings.unrewarded,
            seed=settings.seed,
        )

    def _activate(
        self,
        run: Run,
        path: str | None = None,
        model: str | None = None,
        mode: RequestedMode = "migrated",
    ) -> Run:
        """Activate the candidate, unless the model it was compared with is no longer active.

        An activation by hand wins. If no answer comes, the record stays "planned", and the next run
        finds out whether the service activated the candidate.
        """
        if self.settings.dry_run:
            return self.records.finish(run, outcome="dry run")
        try:
            models = self._service.activate(
                path, mode, model=model, request_id=run.request_id, if_active=run.current
            )
        except NoAnswerError as error:
            return self.records.finish(run, why=f"{run.why}; not known to be activated: {error}")
        except ServiceError as error:
            if error.status != 409 or self._service.models().active == run.current:
                raise
            why = f"not activated, because another model was during this run: {error.message}"
            return self.records.finish(run, outcome="overridden", why=why)
        return self.records.finish(run, outcome="done", activated=_utc(models.swaps[-1].time))

    def _watch(self, run: Run, runs: list[Run], base: Swap, logged: Logged) -> Run:
        """Note how live groups do since the last activation; roll it back if one earns more.

        Groups are compared by the mean reward that the page shows, over the rounds of a typical
        session before the activation. No weights are needed, so every round counts.
        """
        last = next(
            (r for r in reversed(runs) if r.decision == "activate" and r.outcome == "done"), None
        )
        if last is None or last.candidate != base.model:
            return run
        activated = datetime.fromisoformat(last.activated)
        if _utc(base.time) > _utc(activated.timestamp()):
            return run  # somebody has activated it again since, and knows better
        horizon = data.typical_rounds(logged.decisions, activated)
        means = data.live_groups(logged.decisions, activated, horizon, self.settings.unrewarded)
        means.pop(TRIAL, None)  # it has another model
        tightest_at = _of_earlier_looks(runs, last, self.settings.tightest_at)
        comparisons = {
            name: interval
            for name, interval in compare_groups(
                means, MAIN_GROUP, self.settings.level, tightest_at
            ).items()
            if math.isfinite(interval.stderr)
        }
        groups = {
            name: interval._asdict() | {"tightest_at": tightest_at}
            for name, interval in comparisons.items()
        }
        run = self.records.finish(run, groups=groups)
        worse = [name for name, interval in comparisons.items() if interval.high < 0]
        if not worse:
            return run
        span = comparisons[worse[0]]
        why = (
            f"since {last.candidate} was activated the live group {worse[0]!r} earns more: the "
            f"difference of mean rewards in rounds 1-{horizon} lies in "
            f"[{span.low:.4g}, {span.high:.4g}]"
        )
        run = self.records.finish(run, decision="roll back", why=why, candidate=last.current)
        return self._activate(run, model=last.current)

    def _settled(self, run: Run, swaps: Sequence[Swap]) -> Run:
        """Record whether the service has activated the candidate of a run that was cut short.

        A candidate that it has not activated is not activated now: the log, the active model or the
        options may have changed, so this run judges anew.
        """
        if run.outcome != "planned":
            return run
        why = "the process ended during this run; the service was not touched"
        if run.decision in ("activate", "pool", "roll back", "try"):
            since = (swap for swap in swaps if swap.time > run.active_since)
            done = next((swap for swap in since if swap.model == run.candidate), None)
            if done is not None:
                return self.records.finish(run, outcome="done", activated=_utc(done.time))
            why = f"the process ended before it could {run.decision}: the next run judges anew"
        return self.records.finish(run, outcome="failed", why=why)

    def _prune(self) -> None:
        """Keep the last `keep` models that runs of this work folder made, and the active one."""
        runs = self.records.all()
        made = [run for run in runs if run.candidate_path and Path(run.candidate_path).is_dir()]
        for run in made[: -self.settings.keep]:
            path = Path(run.candidate_path)
            own = path.name.startswith(PREFIX) and path.parent == self.settings.models
            if own and run.candidate != runs[-1].current:
                shutil.rmtree(path, ignore_errors=True)


def _versions(swaps: Sequence[Swap], active: str, pooled: Collection[str]) -> Sequence[Swap]:
    """Return the activations of all versions of the active model, oldest first.

    Another catalogue, pooled rewards and the end of a trial make another version.
    """
    whole = [swap for swap in swaps if swap.mode != "trial"]
    last = max(i for i, swap in enumerate(whole) if swap.model == active)
    first = last
    while first > 0 and (
        whole[first].mode == "extended"
        or (whole[first].mode == "pinned" and whole[first].model in pooled)
        or whole[first].model == whole[first - 1].model
    ):
        first -= 1
    return whole[first : last + 1]


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _same_question(before: Run, run: Run) -> bool:
    """Return whether a run would repeat another: the same log, active model and options."""
    asked = ("cursor", "current", "options")
    return all(getattr(before, name) == getattr(run, name) for name in asked)


def _pooled(runs: list[Run]) -> set[str]:
    """Return the ids of start models that runs of this work folder pooled rewards into."""
    return {run.candidate for run in runs if run.decision == "pool"}


def _has_tried(run: Run) -> bool:
    """Return whether a run put a learned model on trial, or could not learn one."""
    carried_out = run.decision != "try" or run.outcome == "done"
    return "tried_sessions" in run.data and carried_out and run.outcome != "dry run"


def _took_over(runs: list[Run], versions: Collection[str]) -> bool:
    """Return whether the current model took over after a trial."""
    return any(
        run.decision == "activate" and run.candidate in versions and TRIAL in run.groups
        for run in runs
    )


def _rewards(current: Model, decisions: pl.DataFrame, unrewarded: float | None) -> pl.DataFrame:
    """Return the rewarded decisions of the actions that the current model has."""
    if unrewarded is not None:
        decisions = decisions.with_columns(pl.col("reward").fill_null(unrewarded))
    return decisions.filter(
        pl.col("reward").is_not_null() & pl.col("action").is_in(list(current.ids))
    )


def _pooled_rewards(runs: list[Run], model: str) -> int:
    """Return how many rewards were pooled into this model, at least 1.

    Records of earlier versions lack the number.
    """
    counts = [r.data.get("pooled_rewards", 0) for r in runs if r.candidate == model]
    return max(counts, default=0) or 1


def _pooled_model(current: Model, rewards: pl.DataFrame) -> Any:
    """Return the start model of the note, conditioned on the rewards of all users."""
    prior = start.start_model(n_actions=len(current.ids), **current.notes[start.NOTE])
    places = {name: place for place, name in enumerate(current.ids)}
    actions = np.array([places[name] for name in rewards["action"]], np.int64)
    return start.pooled_posterior(prior, actions, rewards["reward"].to_numpy())


def _judged_against(runs: list[Run], versions: Collection[str], candidate: str) -> list[Run]:
    """Return the runs that judged another candidate against the current model, to activate it."""
    return [
        run
        for run in runs
        if run.verdict
        and run.current in versions
        and run.candidate != candidate
        and run.outcome != "dry run"
    ]


def _of_earlier_looks(runs: list[Run], activation: Run, setting: int) -> int:
    """Return where the groups' sequences are tightest: the same place at every look.

    A sequence that is tuned anew after the first look does not hold its level.
    """
    looks = (run.groups for run in runs if run.number > activation.number)
    kept = (one.get("tightest_at") for groups in looks for one in groups.values())
    return next((number for number in kept if number is not None), setting)


def _known_to_both(decisions: pl.DataFrame, current: Model, candidate: Model) -> pl.DataFrame:
    """Return the sessions whose actions both models know; all sessions if callers send features."""
    if current.brings_features:  # actions are then given by features, not by ids
        return decisions
    return data.known_to(decisions, current.ids, candidate.ids)


def _policy_of(decisions: pl.DataFrame, model_ids: Collection[str]) -> str:
    """Return the policy of the main group's latest decision on one of these models."""
    active = decisions.filter(
        (pl.col("group") == MAIN_GROUP)
        & pl.col("model").is_in(list(model_ids))
        & (pl.col("policy") != FALLBACK)
    )
    if active.is_empty():
        raise ValueError("the active model has made no decision yet: there is nothing to compare")
    return str(active["policy"][-1])


def _exploring_like(playing: str, text: str) -> str:
    """Return the policy with the exploration of the active one, as the service will add it.

    What is judged is what will be served, and importance weights are smaller.
    """
    explore = parse(playing)
    if explore.name != "Exploring" or parse(text).name == "Exploring":
        return text
    return str(PolicySpec("Exploring", dict(explore.options) | {"policy": text}))


def _side(
    model: Model,
    policy: str,
    decisions: pl.DataFrame,
    clicks: ClickModel,
    unrewarded: float | None,
) -> Side:
    log = read_decisions(
        decisions, model=model.model, catalogue=model.catalogue, click_model=clicks,
        unrewarded=unrewarded,
    ).log  # fmt: skip
    rewards = log.reward[log.observed]
    inputs = inputs_of(
        model.model,
        model.catalogue,
        reward_range=(float(rewards.min()), float(rewards.max())) if len(rewards) else None,
        horizon=log.n_rounds,
    )
    return Side(build(policy, inputs), model.model, log)
