"""Find the policy `auto` of a model whose fit recommends none.

A service tunes before the model becomes active, and keeps the result in its store: the policy of a
model does not change while it has sessions. `serve` tunes at its start. A model that is activated
over HTTP is tuned by another process (`python -m latentbandits.serving.tuning`, the model on its
standard input), so that requests are decided meanwhile.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING

from latentbandits.policies.registry import AUTO
from latentbandits.serving.engine.engine import Engine
from latentbandits.serving.engine.model_rows import notes, unpack
from latentbandits.serving.engine.models import DEFAULT_POLICY
from latentbandits.serving.errors import Refused
from latentbandits.serving.records import ModelRow

if TYPE_CHECKING:
    from latentbandits.simulation.tune import Tuning

EFFORT = 0.1
_ROUNDS = 50  # assumed horizon, because the length of sessions is unknown
_SECONDS = 5.0  # limit of processor time
_MANY, _MOST = 100, 2_000  # numbers of actions above which fewer users play, and no tuning is done
_log = logging.getLogger("latentbandits")


def lacks_policy(engine: Engine, row: ModelRow) -> bool:
    """Return whether a group's policy is `auto` and this model has no tuned or recommended policy.

    Call it inside a transaction. A model that was active before keeps its policy.
    """
    if AUTO not in engine.settings.policies().values() or notes(row).get("recommended_policy"):
        return False
    known = any(one.model == row.id for one in engine.library.activations)
    return not known and engine.library.tuned(row.id) is None


def tune_row(row: ModelRow) -> Tuning:
    """Tune a policy for a model in a few processor seconds, among the policies without a horizon.

    ValueError, TypeError or TimeoutError if no policy can be tuned.
    """
    from latentbandits.environments import UsersOfModel
    from latentbandits.simulation.tune import default_candidates, tune

    model, catalogue = unpack(row)
    if model.n_sessions is not None:
        raise ValueError(f"it has an instance for each of {model.n_sessions} sessions")
    if (model.n_actions or 0) > _MOST:
        raise ValueError(f"it has more than {_MOST:,} actions")
    items = None if catalogue is None else catalogue.features
    contexts = items if model.n_features is not None else None
    if not UsersOfModel(model, contexts).is_generative:
        raise ValueError(f"a {type(model).__name__} draws no rewards")
    return tune(
        model,
        _ROUNDS,
        contexts,
        default_candidates(model, None),  # the length of sessions is not known
        effort=EFFORT * min(1.0, _MANY / (model.n_actions or 1)),
        seconds=_SECONDS,
    )


def tune_apart(row: ModelRow, seconds: float) -> str | None:
    """Tune in another process, and return the policy; on failure warn, and return None.

    The process is ended after `seconds`.
    """
    command = [sys.executable, "-m", __name__]
    try:
        done = subprocess.run(
            command, input=row.files, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        why = f"it took more than {seconds:g} s"
    except OSError as error:
        why = str(error)
    else:
        if done.returncode == 0:
            winner, _, summary = done.stdout.decode().strip().partition("\n")
            report_tuned(row.name, summary)
            return winner
        why = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    warn_untuned(row.name, why)
    return None


def report_tuned(name: str, summary: str) -> None:
    """Say in the log which policy the tuning has found."""
    _log.info("%s has no recommended policy; tuned: %s", name, summary)


def warn_untuned(name: str, why: str) -> None:
    """Say in the log that a model has no tuned policy."""
    _log.warning(
        "%s has no recommended policy, and none was tuned (%s): auto is %s",
        name, why, DEFAULT_POLICY,
    )  # fmt: skip


def main() -> int:
    """Read the files of a model, and print the winner and the summary of its tuning."""
    try:
        tuning = tune_row(ModelRow("", "the model", sys.stdin.buffer.read()))
    except (Refused, TypeError, ValueError, TimeoutError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{tuning.winner}\n{tuning.summary}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
