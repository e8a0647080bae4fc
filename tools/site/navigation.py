"""Which page stands where: sections, their pages, and titles for the menu."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tools.site import examples
from tools.site.reference import PAGES

HOW_TO: dict[str, list[str]] = {
    "Begin": [
        "how-to/install.md",
        "how-to/in-a-notebook.md",
        "how-to/prepare-a-log.md",
        "how-to/start-without-a-log.md",
    ],
    "Learn": [
        "how-to/learn-a-model.md",
        "how-to/read-the-report.md",
        "how-to/large-catalogue.md",
        "how-to/logs-larger-than-memory.md",
        "how-to/learn-on-spark.md",
        "how-to/user-attributes.md",
        "how-to/row-features.md",
        "how-to/new-items.md",
        "how-to/learn-from-lists.md",
        "how-to/lists-to-a-service.md",
    ],
    "Decide": [
        "how-to/choose-a-policy.md",
        "how-to/choose-a-reward-model.md",
        "how-to/users-who-change.md",
        "how-to/change-the-actions.md",
        "how-to/lists.md",
    ],
    "Serve": [
        "how-to/run-the-service.md",
        "how-to/call-from-python.md",
        "how-to/from-a-web-app.md",
        "how-to/openfeature.md",
        "how-to/inside-your-own-app.md",
        "how-to/web-pages.md",
        "how-to/late-rewards.md",
        "how-to/serve-lists.md",
    ],
    "Operate": [
        "how-to/keys.md",
        "how-to/deploy.md",
        "how-to/kubernetes.md",
        "how-to/observability.md",
        "how-to/export-the-log.md",
        "how-to/back-up-and-restore.md",
    ],
    "Judge and improve": [
        "how-to/compare-groups.md",
        "how-to/is-the-new-model-better.md",
        "how-to/compare-two-logs.md",
        "how-to/swap-a-model-safely.md",
        "how-to/close-the-loop.md",
        "how-to/my-model-harms.md",
    ],
    "Extend": [
        "how-to/write-a-policy.md",
        "how-to/write-an-environment.md",
        "how-to/write-a-learner.md",
        "how-to/run-the-benchmark.md",
    ],
}
"""The how-tos by what the reader is doing; the menu shows these groups."""

SECTIONS: dict[str, list[str]] = {
    "Tutorials": [
        "tutorials/from-a-log-to-a-service.md",
        "tutorials/no-log-yet.md",
        "tutorials/five-minutes.md",
        "tutorials/a-research-run.md",
    ],
    "How to": [page for pages in HOW_TO.values() for page in pages],
    "Concepts": [
        "concepts/what-is-a-latent-bandit.md",
        "concepts/when-not-to-use-one.md",
        "concepts/when-states-pay.md",
        "concepts/m-against-mm.md",
        "concepts/how-a-model-is-learned.md",
        "concepts/side-information.md",
        "concepts/how-the-verdict-is-reached.md",
        "concepts/the-mathematics.md",
        "concepts/posteriors.md",
        "concepts/policies-across-users.md",
        "concepts/propensities.md",
        "concepts/off-policy-evaluation.md",
        "concepts/how-the-loop-decides.md",
        "concepts/durability.md",
        "concepts/compared.md",
        "concepts/related-systems.md",
        "concepts/glossary.md",
    ],
    "Examples": [],
    "Reference": ["reference/index.md"],
    "Evidence": ["evidence/experiments.md", "evidence/movielens.md"],
    "Project": ["project/versioning.md"],
}
"""Pages by section, in order. Pages that are not named join the section of their folder."""

_FOLDERS = {
    "tutorials": "Tutorials",
    "how-to": "How to",
    "concepts": "Concepts",
    "examples": "Examples",
    "reference": "Reference",
    "evidence": "Evidence",
    "project": "Project",
}


def sections(docs: Path) -> dict[str, list[str]]:
    """Return the staged pages by section: the named ones first, then the others."""
    staged = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} - {"index.md"}
    result = {name: [page for page in pages if page in staged] for name, pages in SECTIONS.items()}
    result["Reference"] += [f"reference/{name}.md" for name in PAGES]
    named = {page for pages in result.values() for page in pages}
    for page in sorted(staged - named):
        result[_FOLDERS[page.split("/")[0]]].append(page)
    return result


def menu(docs: Path) -> list[Any]:
    """Return the menu in the form that the site generator takes; how-tos are grouped."""
    items: list[Any] = [{"Home": "index.md"}]
    for name, pages in sections(docs).items():
        titled = {page: {examples.title((docs / page).read_text()): page} for page in pages}
        groups = HOW_TO if name == "How to" else {}
        entries: list[Any] = [
            {group: [titled.pop(page) for page in members]} for group, members in groups.items()
        ]
        entries += titled.values()
        items += [{name: entries}] if entries else []
    return items
