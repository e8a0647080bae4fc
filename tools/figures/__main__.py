"""`python -m tools.figures [NAME...]`: make figures of the docs, each for light and dark pages.

Without a name, every figure is drawn again from the results in docs/figures/results. A name is

- a file `results.json` of `latentbandits reproduce`: its numbers are kept there, and drawn;
- an experiment, with options after a colon (`"movielens: --data ml-1m"`): it is run, and drawn;
- `card`, `fit`, `evaluate`, `lists` or `belief`: a short run, and its figure;
- `architecture`: a drawing of the parts;
- `demo`: the figure of the last `make demo`.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evidence import EXPERIMENTS
from matplotlib.figure import Figure

from latentbandits.cli.console import Progress
from latentbandits.cli.console import executor as processes
from latentbandits.cli.reproduce import add_experiments
from latentbandits.experiments import Experiment, installed
from tools.figures import card, dark, drawings, examples, kept

FOLDER = Path(__file__).parents[2] / "docs" / "figures"
SHORT_RUNS = {
    "card": card.draw,
    "fit": examples.fit,
    "evaluate": examples.evaluate,
    "lists": examples.lists,
    "demo": examples.demo,
    "architecture": drawings.architecture,
    "belief": drawings.belief,
}


def main() -> int:
    """Make each figure that was asked for."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m tools.figures", description=__doc__, formatter_class=form
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--out", default=str(FOLDER), help="folder (default docs/figures)")
    arguments = parser.parse_args()
    out = Path(arguments.out)
    results = out / "results"
    for name in arguments.names or [str(path) for path in sorted(results.glob("*.json"))]:
        for stem, figure in figures(name, results).items():
            save(figure, out, stem)
    return 0


def figures(name: str, results: Path) -> Mapping[str, Figure]:
    """Return the figures of a name; the numbers of a results.json are kept in `results`."""
    if name in SHORT_RUNS:
        return {name: SHORT_RUNS[name]()}
    if not name.endswith(".json"):
        return _run(*name.split(":", 1))
    path = Path(name)
    if path.parent.resolve() == results.resolve():
        return drawn(kept.read(path))
    content = json.loads(path.read_text())
    kept.write(content, results)
    return drawn(content)


def drawn(results: Mapping[str, Any]) -> Mapping[str, Figure]:
    """Draw the figures of an experiment from the content of its results.json."""
    return _experiment(results["experiment"]).draw(results)


def _run(name: str, options: str = "") -> Mapping[str, Figure]:
    experiment = _experiment(name)
    parser = argparse.ArgumentParser(prog="python -m tools.figures")
    add_experiments(parser, [experiment])
    requests = parser.parse_args([name, *shlex.split(options)])
    experiment.check(requests)
    with processes(requests.jobs) as executor, Progress(name) as progress:
        return experiment.run(requests, executor, progress).figures


def _experiment(name: str) -> Experiment:
    return next(one for one in (*installed(), *EXPERIMENTS) if one.name == name)


def save(figure: Figure, folder: Path, stem: str) -> None:
    """Write STEM.png and STEM-dark.png."""
    figure.savefig(folder / f"{stem}.png", dpi=160)
    dark.recolour(figure)
    figure.savefig(folder / f"{stem}-dark.png", dpi=160)


if __name__ == "__main__":
    sys.exit(main())
