"""One run of the loop: read the log, fit, judge on held-out sessions, activate or keep."""

from __future__ import annotations

import math
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from latentbandits.client import Client
from latentbandits.client_protocol import NoAnswerError, ServiceError
from latentbandits.evaluation.intervals import TIGHTEST_AT, check_level, compare_groups
from latentbandits.evaluation.reading import read_decisions
from latentbandits.learning.fit_options import FitOptions
from latentbandits.learning.fitting import Fit, fit
from latentbandits.learning.save import save_fit
from latentbandits.loop import data
from latentbandits.loop.caller_features import brings_features, encode_log, keep_names
from latentbandits.loop.kept_log import KeptLog, Logged, Source
from latentbandits.loop.promotion import Side, Verdict, judge
from latentbandits.loop.records import Records, Run
from latentbandits.models.arms import start
from latentbandits.models.artefacts import files as artefacts
from latentbandits.models.artefacts.catalogue import Catalogue
from latentbandits.models.clicks import ClickModel, Each, as_click_model
from latentbandits.models.growing import add_average
from latentbandits.owned_tempdir import remove_left_overs
from latentbandits.policies.registry import Inputs, PolicySpec, build, parse
from latentbandits.report.report import Progress
from latentbandits.serving.engine.model_rows import notes, read_artefact, unpack
from latentbandits.serving.http.messages import Swap
from latentbandits.serving.records import ModelRow, SwapMode

PREFIX = "relearned-"
MAIN_GROUP = "policy"

LEAST_SESSIONS, GROWTH = 200, 1.5
"""Sessions with 2 rewards or more from which a start model's first successor is learned, and the
factor by which they must have grown for the next try: the phases of the policy `Phased`."""


ASKED = (
    "policy", "with_logs", "margin", "compared", "level", "tightest_at", "held_out", "unrewarded",
    "since", "half_life", "dry_run", "seed",
)  # fmt: skip
"""The settings that a verdict depends on."""


@dataclass(frozen=True)
class Settings:
    """Settings of the loop; the command line documents them."""

    work: Path
    models: Path  # the service's models folder
    policy: str | None = None  # None: the candidate's recommended one
    with_logs: tuple[str, ...] = ()
    columns: dict[str, Any] = field(default_factory=dict)  # columns of `with_logs`
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
    bootstrap: int = 0
    fit_options: dict[str, Any] = field(default_factory=dict)
    earlier: tuple[Any, Catalogue | None] | None = None  # the model that a fit starts from
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
        return {name: _as_json(value) for name, value in values.items()}


def _as_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return value.total_seconds() if isinstance(value, timedelta) else value


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
        """The click model that its fit chose for lists."""
        return as_click_model(self.notes.get("click_model", Each.name))

    @property
    def ids(self) -> tuple[str, ...]:
        if self.catalogue is not None:
            return self.catalogue.ids
        return tuple(str(i) for i in range(self.model.n_actions or 0))

    @property
    def brings_features(self) -> bool:
        return brings_features(self.model, self.catalogue)

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


Learn = Callable[[Sequence[str], Settings, Progress | None], Fit]
"""A function from paths of logs to a fit; tests plant broken ones."""


def learn(paths: Sequence[str], settings: Settings, progress: Progress | None) -> Fit:
    """Fit a candidate to old logs and the training part of the service's log."""
    options = FitOptions(
        **settings.columns,
        unrewarded=settings.unrewarded,
        bootstrap=settings.bootstrap,
        earlier=settings.earlier,
        seed=settings.seed,
        **settings.fit_options,
    )
    return fit(list(paths), options, progress=progress)


class Relearner:
    """Runs the loop in a work folder. A crash at any point leaves the service as it was."""

    def __init__(
        self, settings: Settings, service: Client, source: Source, learner: Learn = learn
    ) -> None:
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
        self._remove_training()
        for run in runs:
            if run.outcome == "planned" and run.candidate_path:
                path = Path(run.candidate_path)
                remove_left_overs(path.parent, f".{path.name}-")

    @property
    def _training(self) -> Path:
        return self.settings.work / "training.parquet"

    def _older(self, number: int) -> Path:
        return self.settings.work / f"training-older-{number}.parquet"

    def _remove_training(self) -> None:
        for path in self.settings.work.glob("training*.parquet"):
            path.unlink(missing_ok=True)

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
        missing = 0
        if start.NOTE in current.notes:
            learnable = data.sessions_with_rewards(divided.training, 2)
            missing = max(_sessions_for_next_try(runs, model_ids) - learnable, 0)
            counts["tried_sessions" if missing == 0 else "waiting_sessions"] = learnable
        # The number alone is not unique: another work folder may use the same models folder.
        folder = settings.models / f"{PREFIX}{run.number:06d}-{run.request_id[-8:]}"
        run = self.records.finish(run, data=counts, candidate_path=str(folder))
        if missing:
            return self._pool(run, folder, current, divided.training, missing)
        candidate, result = self._fit(folder, current, divided.training, progress)
        playing = _policy_of(logged.decisions, model_ids)
        earlier = _judged_against(runs, model_ids, candidate.id)
        verdict = self._judge(earlier, current, candidate, playing, divided.judging)
        run = self.records.finish(
            run,
            candidate=candidate.id,
            verdict=verdict.as_json(),
            warnings=[str(w) for w in result.report.get("warnings", [])],
            decision="activate" if verdict.activate else "keep",
            why=verdict.reason,
        )
        if not verdict.activate:
            return self.records.finish(run, outcome="done")
        return self._activate(run, path=folder.name)

    def _fit(
        self, folder: Path, current: Model, training: pl.DataFrame, progress: Progress | None
    ) -> tuple[Model, Fit]:
        settings = replace(self.settings, earlier=(current.model, current.catalogue))
        path = self._training
        columns = ["decision_id", "session", "action", "reward", "time"]
        older = list(settings.with_logs)
        try:
            if current.brings_features:
                columns += ["features", "index"]
                options = settings.fit_options | {"features": ["features"]}
                settings = replace(settings, earlier=None, fit_options=options)
                older = [
                    encode_log(log, settings.columns, current.model, self._older(i))
                    for i, log in enumerate(older)
                ]
            training.select(columns).write_parquet(path)
            result = self._learn([*older, str(path)], settings, progress)
        finally:
            self._remove_training()  # the copy of the log is not kept after the run
        if current.brings_features:
            result = keep_names(result, current.model)
        save_fit(result, folder)
        return Model.of(read_artefact(folder)), result

    def _pool(
        self, run: Run, folder: Path, current: Model, training: pl.DataFrame, missing: int
    ) -> Run:
        """Activate the start model with the rewards of all users in its prior.

        Open sessions keep the model that they began with, so that none of their rewards counts
        twice. A new session plays Thompson sampling on the pooled rewards.
        """
        waits = f"a learned model waits for {missing} more sessions with 2 or more rewards"
        pooled = _pooled_model(current, training, self.settings.unrewarded)
        with artefacts.replacing(folder) as files:
            artefacts.write(pooled, files, current.catalogue, current.notes)
        candidate = read_artefact(folder).id
        if candidate == current.id:
            shutil.rmtree(folder)
            why = f"the log has no new rewards; {waits}"
            return self.records.finish(run, decision="nothing new", outcome="done", why=why)
        why = f"the rewards of all users were pooled; {waits}"
        run = self.records.finish(run, decision="pool", candidate=candidate, why=why)
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
        mode: SwapMode = "migrated",
    ) -> Run:
        """Activate the candidate, unless the model it was compared with is no longer active.

        An activation by hand wins. Where no answer comes the record stays "planned", and the next
        run finds out whether the service has done it.
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
        session before the activation. They need no weights, so that every round adds to what is
        seen.
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
        run = self.records.finish(
            run,
            decision="roll back",
            why=why,
            candidate=last.current,
        )
        return self._activate(run, model=last.current)

    def _settled(self, run: Run, swaps: Sequence[Swap]) -> Run:
        """Record whether the service has activated what a run that was cut short had planned.

        What it has not activated is not activated now: the log, the active model or the options may
        have changed, so that this run judges anew.
        """
        if run.outcome != "planned":
            return run
        why = "the process ended during this run; the service was not touched"
        if run.decision in ("activate", "pool", "roll back"):
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
    """Return the activation of the active model; if its catalogue was changed since, or rewards
    were pooled into it, of all its versions, the first one first.
    """
    last = max(i for i, swap in enumerate(swaps) if swap.model == active)
    first = last
    while first > 0 and (
        swaps[first].mode == "extended"
        or (swaps[first].mode == "pinned" and swaps[first].model in pooled)
    ):
        first -= 1
    return swaps[first : last + 1]


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _same_question(before: Run, run: Run) -> bool:
    """Return whether a run would repeat another: the same log, active model and options."""
    asked = ("cursor", "current", "options")
    return all(getattr(before, name) == getattr(run, name) for name in asked)


def _pooled(runs: list[Run]) -> set[str]:
    """Return the ids of start models that runs of this work folder pooled rewards into."""
    return {run.candidate for run in runs if run.decision == "pool"}


def _sessions_for_next_try(runs: list[Run], versions: Collection[str]) -> int:
    """Return the sessions that the next successor of a start model is learned from, at least."""
    tried = [run.data.get("tried_sessions", 0) for run in runs if run.current in versions]
    return max(LEAST_SESSIONS, math.ceil(GROWTH * max(tried, default=0)))


def _pooled_model(current: Model, training: pl.DataFrame, unrewarded: float | None) -> Any:
    """Return the start model of the note, conditioned on the rewards of all users."""
    prior = start.start_model(n_actions=len(current.ids), **current.notes[start.NOTE])
    if unrewarded is not None:
        training = training.with_columns(pl.col("reward").fill_null(unrewarded))
    rewarded = training.filter(
        pl.col("reward").is_not_null() & pl.col("action").is_in(list(current.ids))
    )
    places = {name: place for place, name in enumerate(current.ids)}
    actions = np.array([places[name] for name in rewarded["action"]], np.int64)
    return start.pooled_posterior(prior, actions, rewarded["reward"].to_numpy())


def _judged_against(runs: list[Run], versions: Collection[str], candidate: str) -> list[Run]:
    """Return the runs that judged other candidates against a version of the current model, and
    might have activated them.
    """
    return [
        run
        for run in runs
        if run.verdict
        and run.current in versions
        and run.candidate != candidate
        and run.outcome != "dry run"
    ]


def _of_earlier_looks(runs: list[Run], activation: Run, setting: int) -> int:
    """Return where the sequences of the groups since this activation are tightest: as at the first
    look, because a sequence that is tuned anew does not hold its level.
    """
    looks = (run.groups for run in runs if run.number > activation.number)
    kept = (one.get("tightest_at") for groups in looks for one in groups.values())
    return next((number for number in kept if number is not None), setting)


def _known_to_both(decisions: pl.DataFrame, current: Model, candidate: Model) -> pl.DataFrame:
    """Return the sessions whose actions both models know; all, if callers bring features."""
    if current.brings_features:  # actions are then given by features, not by ids
        return decisions
    return data.known_to(decisions, current.ids, candidate.ids)


def _policy_of(decisions: pl.DataFrame, model_ids: Collection[str]) -> str:
    """Return the policy of the main group's latest decision on one of these models."""
    active = decisions.filter(
        (pl.col("group") == MAIN_GROUP)
        & pl.col("model").is_in(list(model_ids))
        & (pl.col("policy") != data.FALLBACK)
    )
    if active.is_empty():
        raise ValueError("the active model has made no decision yet: there is nothing to compare")
    return str(active["policy"][-1])


def _exploring_like(playing: str, text: str) -> str:
    """Return the policy with the exploration of the one that plays: the service will add it.

    What is judged is what will be served. Weights are smaller, too: the log's own policy has none.
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
    inputs = Inputs(
        model=model.model,
        reward_range=(float(rewards.min()), float(rewards.max())) if len(rewards) else None,
        horizon=log.n_rounds,
        items=None if model.catalogue is None else model.catalogue.features,
    )
    return Side(build(policy, inputs), model.model, log)
