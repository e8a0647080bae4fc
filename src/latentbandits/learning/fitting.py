"""Learn a model from a log in three stages: read its users, learn, and assess what was learned.

`read_users` (`reading.py`) numbers and sums the users of a log, and holds some of them out.
`learn` chooses a model on the first half of these, learns it without and with them, and adds its
uncertainty. `assess` judges the result on the other half, and reports on it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from latentbandits.learning.arms.learner import ArmsLearner
from latentbandits.learning.arms.mixture import earlier_means
from latentbandits.learning.assess import report, report_tables
from latentbandits.learning.assess.comparisons import (
    FACTORISATION,
    NOT_TRIED,
    ONE_STATE,
    SAMPLED_USERS,
    DynamicsChoice,
    KindChoice,
    StateComparison,
    arms_of_sample,
    choose_dynamics,
    choose_kind,
    compare_with_one_state,
    evidence_of_states,
    factorise,
    learn_choices,
    learn_one_state,
)
from latentbandits.learning.assess.replay import Replay
from latentbandits.learning.assess.report import cautions
from latentbandits.learning.assess.tournament import (
    judge_policies,
    popular_averages,
    saved_and_loaded,
    unjudged,
)
from latentbandits.learning.attributes.gate import attribute_gain, choose_states, learn_gate
from latentbandits.learning.attributes.items import learn_items
from latentbandits.learning.attributes.regression import RowLearner
from latentbandits.learning.backends.backend import LogEngine, engine_of
from latentbandits.learning.fit_options import (
    FitOptions,
    Form,
    check_sizes,
    kinds_of,
)
from latentbandits.learning.learners import (
    Candidate,
    Disagreement,
    Learned,
    Learner,
    Selection,
    Split,
    Step,
    bootstrap,
    excess_spread,
    judge,
    try_step,
    widened,
)
from latentbandits.learning.linear.learner import LinearLearner
from latentbandits.learning.logs.rows import (
    Log,
    make_family,
)
from latentbandits.learning.logs.tables import LogError, TableSource
from latentbandits.learning.reading import Part, Users, further_parts, read_users
from latentbandits.learning.rewards import (
    FamilyChoice,
    Transformed,
    TransformedLearner,
    choose_family,
)
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.clicks import ClickModel
from latentbandits.models.shown import StateRewards, model_line
from latentbandits.names import one_of
from latentbandits.report.notebook import Shown, plural
from latentbandits.report.report import Progress, Silent, Table

QUICK_POLICIES = ("mmGreedy", "mmBayesUCB(quantile=0.7)")
"""The policies on the model that a quick fit plays: one that does not explore, and one that does.
Without exploring, users may be shown for ever what all of them like a little."""

HELD_APART = 2
"""Number of states that are held apart and tried, where the learner chose one state."""


@dataclass(frozen=True, eq=False, repr=False)
class Fit(Shown):
    """The result of a fit: the model of all users, its catalogue, and the report on it.

    `to_polars` and `to_pandas` return the mean reward of every action in every state. `plot` draws
    the verdict, or these rewards if the fit was not assessed.
    """

    model: Any  # BernoulliArms, GaussianArms, ..., LinearGaussian
    catalogue: Catalogue
    report: dict[str, Any]
    click_model: ClickModel | None = None  # how users look at lists; None: shown alone

    def _headline(self) -> str:
        log, judged = self.report["log"], self.report["judgement"]
        learned = f"{plural(log['rewards'], 'reward')} of {plural(log['users'], 'user')}"
        advice = "" if judged is None else f"; use {judged['recommended_policy']}"
        return f"Fit({model_line(self.model)} from {learned}{advice})"

    def _verdict(self) -> tuple[str, str] | None:
        judged = self.report["judgement"]
        return None if judged is None else (judged["verdict"].split()[0], judged["sentence"])

    def _shown_tables(self) -> list[Table]:
        judged = self.report["judgement"]
        replayed = judged is not None and judged["replay"]
        shown = [report_tables.states_table(self.report["states"])]
        return [*shown, report_tables.replay_table(judged)] if replayed else shown

    def _columns(self) -> dict[str, list[Any]]:
        return self._rewards().columns()

    def _draw(self) -> Any:
        judged = self.report["judgement"]
        if judged is None or not judged["curves"]:
            return self._rewards().draw()
        from latentbandits.learning.assess.figures import draw_verdict

        return draw_verdict(self.report)

    def _rewards(self) -> StateRewards:
        return StateRewards(self.model, self.catalogue.names, self.catalogue.features)


def fit(
    log: Log | TableSource,
    options: FitOptions | None = None,
    *,
    progress: Progress | None = None,
    **changes: Any,
) -> Fit:
    """Learn a model with its own uncertainty from a table of past interactions.

    Options that are "auto" are chosen by the evidence of held-out users. If there are more than
    10,000,000 rewards, choices are made on a sample of users, and the chosen model is learned from
    all.

    Args:
        log: a table of interactions (a path, folder, glob or list of these, or a frame), or a
            `Log`. An export of the service is one too.
        options: how to read the log, and what to learn; None: the defaults of `FitOptions`.
        progress: counts the steps of the fit.
        changes: options that differ from `options`, by name: `fit(log, states=3, bootstrap=0)`.

    >>> from latentbandits.learning.generate import generate_arms
    >>> log = generate_arms(n_users=300, n_rounds=20, n_states=2, n_actions=3).log
    >>> fit(log, states="auto", bootstrap=5, assess=False).model.n_states
    2
    """
    started = time.perf_counter()
    bar = Silent() if progress is None else progress
    try:
        for name in changes:
            one_of("option of fit", name, FitOptions.__dataclass_fields__)
    except ValueError as error:
        raise TypeError(str(error)) from None  # as Python says that it knows no such keyword
    options = replace(FitOptions() if options is None else options, **changes)
    if options.quick:
        options = replace(options, bootstrap=0)
    with read_users(log, options, bar) as users:
        expected = expected_seconds(users, options)
        if expected is not None:
            bar = Expecting(bar, time.process_time() + expected)
            users = users._replace(split=users.split._replace(progress=bar))
        result = learn(users, options)
        content = describe(users, result, options)
        if options.assess:
            content |= assess(users, result, content, options)
    content["seconds"] = round(time.perf_counter() - started, 2)
    clicks = None if users.shown is None else users.shown.model
    return Fit(result.written.model, result.catalogue, content, clicks)


# How long it will take.

MEASURED_ON = 5_000
"""Size of the sample of rewards that is learned from once, to measure how long it takes."""

LEARNINGS: Mapping[str, float] = {"arms": 7, "linear": 10, "clicks": 16}
"""How many times as long as one learning the choice of arms takes, that of a linear model, and that
of a linear model of clicks: what typical fits took."""

BOOTSTRAP_LEARNINGS = 0.8
"""The same of one bootstrap fit of a linear model; those of arms take next to nothing."""

ASSESSMENT = 400
"""How many times as long as the scores of the held-out users replay and simulation take."""

LEAST_LEFT = 5.0
"""Seconds below which no time is announced."""


def expected_seconds(users: Users, options: FitOptions) -> float | None:
    """Estimate how long learning and assessing will take, by a small part of each, measured.

    These are seconds of processor time, which other processes on the machine do not change, right
    within a factor of about three: how many steps a learner needs depends on the log. If a linear
    model is compared with arms, only its sample of users is counted, which mostly decides. None for
    features of rows, for kinds that another package registered, and for logs too small to learn
    from a part.
    """
    clicks = _are_clicks(users, options)
    kinds = kinds_of(options.kind, users.everyone, options.check)
    if users.rows is not None or not set(kinds) <= set(LEARNINGS):
        return None
    few = users.split.kept
    n_users = round(few.n_users * min(MEASURED_ON / few.n_events, 1.0))
    sample = engine_of(few.sample(min(max(n_users, 50), few.n_users), options.seed))
    seconds = 0.0
    for kind in kinds[:1] if options.quick else kinds:
        learner: Learner = ArmsLearner()
        times, rank = LEARNINGS[kind], None
        if kind == "linear":
            learner = LinearLearner(reg=1.0, rewards="bernoulli" if clicks else "gaussian")
            times = LEARNINGS["clicks" if clicks else kind]
            times += BOOTSTRAP_LEARNINGS * options.bootstrap if len(kinds) == 1 else 0.0
            times *= 1.0 if len(kinds) == 1 else min(SAMPLED_USERS / few.n_users, 1.0)
            rank = min(5, sample.n_users, sample.n_actions)
        try:
            learner.learn(sample, Candidate(1, rank), options.seed)  # imports what it needs
            started = time.process_time()
            learned = learner.learn(sample, Candidate(1, rank), options.seed)
            taken = time.process_time() - started
        except ValueError:
            return None
        seconds += times * taken * few.n_events / sample.n_events
    started = time.process_time()
    judge(learned, users.judging)
    taken = time.process_time() - started
    return seconds + (ASSESSMENT * taken if options.assess else 0.0)


@dataclass(frozen=True)
class Expecting:
    """Progress whose tasks say how much of the expected time is left."""

    bar: Progress
    ends: float  # by time.process_time

    def start(self, description: str, total: int) -> None:
        left = self.ends - time.process_time()
        note = f" (about {left:.0f} s left)" if left >= LEAST_LEFT else ""
        self.bar.start(description + note, total)

    def advance(self, steps: int) -> None:
        self.bar.advance(steps)


# Stage two: the model.


@dataclass(frozen=True, eq=False)
class Choice:
    """The chosen model of the kept users, and the grounds of the choice."""

    form: Form
    selection: Selection
    families: FamilyChoice | None  # of the rewards of arms
    steps: tuple[Step, ...]
    one_state: Selection
    comparison: StateComparison | None  # with one state; None if the choice has one state only
    kinds: KindChoice | None = None  # with the other kind of model
    dynamics: DynamicsChoice = NOT_TRIED


class Result(NamedTuple):
    """The written model, and the same model learned without the held-out users."""

    written: Learned
    candidate: Learned
    choice: Choice
    catalogue: Catalogue
    disagreement: Disagreement | None
    widening: dict[str, float] | None
    gate: dict[str, Any] | None  # the report on users' attributes
    items: dict[str, Any] | None  # the report on items' attributes


def learn(users: Users, options: FitOptions) -> Result:
    """Choose a model on the users for choices, learn it from all users, and add its uncertainty.

    Each optional step is left out if it clearly lowers the evidence of the users for choices.
    """
    check_sizes(options.states, options.rank, users.everyone)
    choice = _let_move(_select_kind(users, options), users, options)
    selection, steps, split, bar = choice.selection, choice.steps, users.split, users.split.progress
    bar.start("learning from all users", 1)
    selection, written = _learn_all(selection, users.everyone, split)
    candidate, disagreement, widening = selection.learned, None, None
    if options.bootstrap and choice.dynamics.chosen == "none":
        disagreement = bootstrap(
            selection.learner, split.kept, candidate, options.bootstrap, split.seed, bar
        )
        wide, _ = widened(selection.learner, candidate, disagreement, users.kept.summary)
        step = try_step(
            "bootstrap widening",
            selection.judged.by_user(),
            judge(wide, split.held_out).by_user(),
        )
        steps = (*steps, step)
        share = split.kept.n_users / users.everyone.n_users
        disagreement = disagreement.of_more_users(candidate, written, share)
        if step.used:
            candidate = wide
            written, widening = widened(
                selection.learner, written, disagreement, users.everyone.summary
            )
    gate_report = None
    if users.attributes is not None:
        bar.start("learning what users' attributes say", 1)
        gated = learn_gate(
            users.attributes, candidate, written, split.kept, split.held_out, users.everyone
        )
        candidate, written, gate_report, step = gated
        steps = (*steps, step)
    item_report = None
    if users.items is not None:
        bar.start("learning what items' attributes say", 1)
        written, item_report = learn_items(
            candidate, written, users.judging, users.items, options.seed
        )
    ids = users.everyone.action_ids
    vectors = written.features if users.rows is None else None  # else requests send them
    averages = None
    if written.features is None and users.rows is None:
        averages = popular_averages(users.everyone, users.lists)
    names = None if options.names is None else [options.names.get(i, i) for i in ids]
    catalogue = Catalogue(ids, names, vectors, averages=averages)
    return Result(
        written, candidate, replace(choice, selection=selection, steps=steps), catalogue,
        disagreement, widening, gate_report, item_report,
    )  # fmt: skip


def _select_kind(users: Users, options: FitOptions) -> Choice:
    """Choose the settings of every kind of model that is possible, and then the kind.

    Only arms can be learned together with a hidden choice of actions. A linear model is learned in
    full only if a sample of users does not speak for arms. A quick fit compares nothing.
    """
    kind = options.kind if users.rows is None else "linear"
    if users.shown is not None and users.shown.family is not None:
        kind = "arms"
    first, *others = kinds_of(kind, users.everyone, options.check)
    choice = _select(users, first, options)
    if options.quick:
        return choice
    plain = options.transform is None and users.attributes is None and users.shown is None
    if users.confoundable and plain:
        joint = learn_choices(choice.selection, users.split, options.wanted_states)
        if joint is not None:
            return replace(choice, selection=joint, comparison=None)
    if others:
        if options.transform is None:
            rival = _linear_learner(users, options)
            kinds = arms_of_sample(choice.selection, rival, users.split, options.wanted_states)
            if kinds is not None:
                return replace(choice, kinds=kinds)
        with suppress(ValueError):  # there are too few users for a linear model
            linear = _select(users, "linear", options)
            kinds = choose_kind(choice.selection, linear.selection, users.split)
            choice = replace(linear if kinds.chosen == "linear" else choice, kinds=kinds)
    return choice


def _let_move(choice: Choice, users: Users, options: FitOptions) -> Choice:
    """Return the choice, with states that move if rows of held-out users are then predicted better.

    A quick fit does not try it.
    """
    if options.quick and options.dynamics == "auto":
        return choice
    attributes = (users.attributes, users.rows, users.items, users.shown)
    if any(part is not None for part in attributes):
        if options.dynamics == "markov":
            raise LogError("dynamics markov is not for lists, nor with attributes or features")
        return replace(choice, dynamics=DynamicsChoice("none", "it has attributes or lists"))
    selection, chosen = choose_dynamics(choice.selection, users.split, options)
    return replace(choice, selection=selection, dynamics=chosen)


def _select(users: Users, form: Form, options: FitOptions) -> Choice:
    """Choose the settings of the model, whether rewards are transformed, and if states pay."""
    learner, families = _learner(users, form, options)
    learner, selection, steps = _transform_if_better(learner, users.split, options)
    if users.attributes is not None and options.wanted_states is None:
        selection = choose_states(learner, selection, users.split)
    one_state, selection, comparison = _one_or_several(learner, selection, users, options)
    if families is not None:
        selection = replace(selection, warnings=families.warnings + selection.warnings)
    return Choice(form, selection, families, steps, one_state, comparison)


def _transform_if_better(
    learner: Learner, split: Split, options: FitOptions
) -> tuple[Learner, Selection, tuple[Step, ...]]:
    """Return the learner and its choice, of transformed rewards if asked for and no worse."""
    wanted = options.wanted_states
    if options.transform is None:
        return learner, learner.select(split, wanted), ()
    changed = TransformedLearner(learner, options.transform)
    selection = changed.select(split, wanted)
    plain = learner.select(split, (selection.chosen.n_states,))
    step = try_step(
        f"transform {options.transform}", plain.judged.by_user(), selection.judged.by_user()
    )
    if step.used:
        return changed, selection, (step,)
    return learner, plain if wanted else learner.select(split, None), (step,)


def _one_or_several(
    learner: Learner, selection: Selection, users: Users, options: FitOptions
) -> tuple[Selection, Selection, StateComparison | None]:
    """Return the choice with one state, the choice between it and `selection`, and the comparison.

    Users' attributes and explicit requests are reasons for states that rewards alone are not.
    """
    one_state = learn_one_state(learner, selection, users.split)
    asked = options.wanted_states is not None or users.attributes is not None
    if one_state is selection:
        comparison = None if asked else _held_apart(learner.apart(), selection, users, options)
        if comparison is None:
            return one_state, selection, None
        return comparison.one, _with_row(comparison.one, comparison.several), comparison
    playing = users.playing(options, selection.learned)
    comparison = compare_with_one_state(one_state, selection, users.split.held_out, playing)
    if asked or not comparison.takes_one:
        return one_state, selection, comparison
    comparison = _by_further_users(comparison, users, options)
    one_state, selection = comparison.one, comparison.several
    if comparison.takes_one:
        selection = _with_row(selection, one_state)
    return one_state, selection, comparison


def _by_further_users(
    comparison: StateComparison, users: Users, options: FitOptions
) -> StateComparison:
    """Return the comparison by further users too, by models learned without each part of them."""
    parts = further_parts(users, options)
    one, several = (
        _learn_without(parts, choice, options.seed)
        for choice in (comparison.one, comparison.several)
    )
    nats, preferred = evidence_of_states(one, several, [part.users for part in parts])
    return comparison._replace(nats=nats, preferred=preferred, one=one, several=several)


def _held_apart(
    apart: Learner | None, one_state: Selection, users: Users, options: FitOptions
) -> StateComparison | None:
    """Return the comparison of one state with several states that are held apart.

    None if nothing speaks for several states. Two results would: rewards of users for choices and
    of further users are clearly more probable under several states; or log evidence is higher, and
    one state is worse in replay. In a quick fit nothing is held apart.
    """
    if options.quick or apart is None:
        return None
    with suppress(LogError):  # there are fewer users than states
        alone, several = (apart.select(users.split, (n,)) for n in (1, HELD_APART))
        higher = apart.choose((alone.chosen, several.chosen)) is several.chosen
        nats, _ = evidence_of_states(one_state, several)
        if several.learned.model.n_states > 1 and (higher or nats.mean > 0):
            playing = users.playing(options, several.learned)
            comparison = compare_with_one_state(one_state, several, users.split.held_out, playing)
            comparison = _by_further_users(comparison, users, options)
            if comparison.preferred or (higher and not comparison.takes_one):
                return comparison
    return None


def _with_row(selection: Selection, other: Selection) -> Selection:
    """Return the choice `other`, with its candidate inserted among the rows of `selection`."""
    same = [
        row.n_states == other.chosen.n_states and row.rank == other.chosen.rank
        for row in selection.rows
    ]
    rows = [row for row, replaced in zip(selection.rows, same, strict=True) if not replaced]
    place = same.index(True) if any(same) else 0
    return replace(other, rows=(*rows[:place], other.chosen, *rows[place:]))


def _learner(users: Users, form: Form, options: FitOptions) -> tuple[Learner, FamilyChoice | None]:
    """Return the learner of a kind of model; of arms, with the family of their rewards."""
    transform, everyone = options.transform, users.everyone
    if form == "arms":
        families = _family(users, options)
        family = families.family
        if family is None:
            units = everyone if transform is None else everyone.mapped(Transformed(transform))
            family = make_family(families.rewards, units.summary.rewards, options.noise)
        known = None
        if options.earlier is not None:
            known = earlier_means(*options.earlier, everyone.action_ids)
        return ArmsLearner(family, method=options.method, earlier=known), families
    if users.rows is not None:
        return RowLearner(users.rows, _are_clicks(users, options)), None
    return _linear_learner(users, options), None


def _linear_learner(users: Users, options: FitOptions) -> LinearLearner:
    return LinearLearner(
        reg=None if options.reg == "auto" else options.reg,
        rank=None if options.rank == "auto" else options.rank,
        noise=options.noise,
        rewards="bernoulli" if _are_clicks(users, options) else "gaussian",
    )


def describe(users: Users, result: Result, options: FitOptions) -> dict[str, Any]:
    """Return the report on what was read and learned, as plain data."""
    choice, written = result.choice, result.written
    selection, families = choice.selection, choice.families
    requested: dict[str, Any] = {
        name: getattr(options, name)
        for name in ("states", "rank", "reg", "kind", "rewards", "transform")
    }
    settings = {
        "kind": choice.form if users.rows is None else "features",
        "states": written.model.n_states,
        "rank": selection.chosen.rank,
    }
    settings |= selection.learner.settings()
    settings |= {"bootstrap": options.bootstrap, "seed": options.seed, "asked": requested}
    return users.about | {
        "family": settings.get("rewards", "gaussian"),
        "settings": settings,
        "kinds": None if choice.kinds is None else choice.kinds.report(),
        "families": None if families is None else families.report(),
        "selection": [row.row(row is selection.chosen) for row in selection.rows],
        "steps": [step.row() for step in choice.steps],
        "one_state": None if choice.comparison is None else choice.comparison.report(),
        "dynamics": choice.dynamics.report(written.model),
        "states": report.of_states(written, result.catalogue),
        "uncertainty": report.of_uncertainty(
            written, result.disagreement, options.bootstrap, options.seed
        ),
        "widening": result.widening,
        "user_features": result.gate,
        "item_features": result.items,
        "judgement": None,
        "held_out": None,
        "warnings": [
            *users.about["warnings"],
            *selection.warnings,
            *(step.warning for step in choice.steps if not step.used),
        ],
    }


# Stage three: the verdict.


def assess(
    users: Users, result: Result, described: Mapping[str, Any], options: FitOptions
) -> dict[str, Any]:
    """Judge the model on users it has not seen, and return that part of the report."""
    candidate = saved_and_loaded(result.candidate, result.catalogue)
    written = saved_and_loaded(result.written, result.catalogue)
    # If actions tell about states, rewards are predicted given them, as they were logged.
    log_actions = result.choice.selection.learned.log_actions
    scores = judge(candidate, users.judging, log_actions=log_actions)
    doubts = report.doubts(scores, users.kept.summary)
    spread = excess_spread(written, users.everyone.summary, users.everyone.action_ids)
    if spread:
        doubts = (*doubts, spread)
    judged = _replayed(users, result, candidate, written, doubts, options)
    if judged is None:
        judged = unjudged(written, users.playing(options, written), doubts)
    content: dict[str, Any] = {
        "judgement": judged,
        "held_out": report.of_held_out(scores, users.kept.summary, users.judging, doubts),
    }
    if result.gate is not None:
        policy = judged["recommended_policy"]
        measured = attribute_gain(candidate, users.judging, policy, options.seed)
        content["user_features"] = result.gate | {"worth": measured, "policy": policy}
    whole = {**described, **content}
    content["warnings"] = [*described["warnings"], *cautions(users.everyone, written, whole)]
    return content


def _replayed(
    users: Users,
    result: Result,
    candidate: Learned,
    written: Learned,
    doubts: tuple[str, ...],
    options: FitOptions,
) -> dict[str, Any] | None:
    """Replay policies on the users for the verdict; None if too few of them can be played."""
    baselines = {ONE_STATE: result.choice.one_state.learned}
    factorised = None if options.quick else factorise(users.split.kept, options.seed)
    if factorised is not None:
        baselines[FACTORISATION] = factorised
    judgement = judge_policies(
        candidate, users.kept, users.judging, playing=users.playing(options, candidate),
        choosing=users.split.held_out, written=written, baselines=baselines,
        policies=QUICK_POLICIES if options.quick else (),
    )  # fmt: skip
    if not judgement:
        return None
    further = _replay_further(users, result, judgement.judged, options)
    return replace(judgement, doubts=doubts, further=further).report()


def _replay_further(
    users: Users, result: Result, policy: str, options: FitOptions
) -> tuple[Replay, ...]:
    """Replay the policy with the further users, each part by the model learned without it."""
    selection, parts, replays = result.choice.selection, further_parts(users, options), []
    if not selection.further:
        selection = _learn_without(parts, selection, options.seed)
    for part, learned in zip(parts, selection.further, strict=True):
        if learned is None:
            continue
        if result.widening is not None and result.disagreement is not None:
            share = users.everyone.n_users / part.others.n_users
            disagreement = result.disagreement.of_more_users(result.written, learned, share)
            learned, _ = widened(selection.learner, learned, disagreement, part.others.summary)
        judgement = judge_policies(
            saved_and_loaded(learned, result.catalogue), part.others, part.users,
            playing=users.playing(options, learned), policies=(policy,),
        )  # fmt: skip
        if judgement:
            replays.append(judgement.replay)
    return tuple(replays)


def _learn_without(parts: Sequence[Part], selection: Selection, seed: int) -> Selection:
    """Return the selection with its models that are learned without each of the parts."""
    models: list[Learned | None] = []
    for part in parts:
        try:
            models.append(selection.learner.learn(part.others, selection.chosen, seed))
        except ValueError:  # a cluster of these users is too small
            models.append(None)
    return replace(selection, further=tuple(models))


def _family(users: Users, options: FitOptions) -> FamilyChoice:
    if users.shown is not None and users.shown.family is not None:
        why = "the click model is positions"
        return FamilyChoice("bernoulli", why, family=users.shown.family)
    if options.transform is not None:
        return FamilyChoice("gaussian", f"the rewards are transformed by {options.transform}")
    if options.noise is not None:
        return FamilyChoice("gaussian", "the noise of gaussian rewards was given")
    requested = None if options.rewards == "auto" else options.rewards
    return choose_family(users.split._replace(kept=users.kept), requested)


def _are_clicks(users: Users, options: FitOptions) -> bool:
    """Return whether rewards are modelled as clicks: as requested, or all of them are 0 and 1."""
    if options.rewards != "auto":
        return options.rewards == "bernoulli"
    summary = users.everyone.summary.rewards
    binary = not summary.outside["bernoulli"].n and summary.least < summary.most
    return binary and options.transform is None


def _learn_all(selection: Selection, log: LogEngine, split: Split) -> tuple[Selection, Learned]:
    """Learn the choice from all users; if a cluster is too small, learn the next best choice."""
    first = selection.chosen
    while True:
        try:
            learned = selection.learner.learn(log, selection.chosen, split.seed)
            break
        except ValueError as error:
            chosen = selection.chosen
            failed = replace(chosen, evidence=None, rmse=None, reason=f"of all users: {error}")
            rows: tuple[Candidate, ...] = tuple(
                failed if row is chosen else row for row in selection.rows
            )
            if all(row.evidence is None for row in rows):
                raise
            chosen = selection.learner.choose(rows)
            selection = replace(selection, rows=rows, chosen=chosen, further=())
    if selection.chosen is not first:
        kept_model = selection.learner.learn(split.kept, selection.chosen, split.seed)
        scores = judge(kept_model, split.held_out)
        selection = replace(selection, learned=kept_model, judged=scores)
    return selection, learned
