"""Which page stands where: sections, their pages, and titles for the menu."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tools.site import examples
from tools.site.reference import PAGES

SECTIONS: dict[str, list[str]] = {
    "Tutorials": [
        "tutorials/from-a-log-to-a-service.md",
        "tutorials/five-minutes.md",
        "tutorials/a-research-run.md",
    ],
    "How to": [
        "how-to/install.md",
        "how-to/in-a-notebook.md",
        "which-policy.md",
        "which-model-for-which-reward.md",
        "how-to/prepare-a-log.md",
        "from-log-to-model.md",
        "logs-larger-than-memory.md",
        "what-you-know-about-users-and-items.md",
        "reading-the-report.md",
        "is-the-new-model-better.md",
        "service.md",
        "web-pages.md",
        "how-to/change-the-actions.md",
        "how-to/lists.md",
        "how-to/late-rewards.md",
        "how-to/users-who-change.md",
        "how-to/swap-a-model-safely.md",
        "how-to/my-model-harms.md",
        "how-to/deploy.md",
        "how-to/from-a-web-app.md",
        "how-to/openfeature.md",
        "how-to/kubernetes.md",
        "how-to/observability.md",
        "how-to/write-a-policy.md",
        "how-to/write-an-environment.md",
    ],
    "Concepts": [
        "concepts/what-is-a-latent-bandit.md",
        "concepts/when-not-to-use-one.md",
        "concepts/m-against-mm.md",
        "concepts/how-a-model-is-learned.md",
        "concepts/propensities.md",
        "concepts/off-policy-evaluation.md",
        "concepts/durability.md",
        "concepts/compared.md",
        "related-systems.md",
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
    """Return the staged pages by section: the named ones first, then the others.

    Pages of no known folder join "How to".
    """
    staged = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} - {"index.md"}
    result = {name: [page for page in pages if page in staged] for name, pages in SECTIONS.items()}
    result["Reference"] += [f"reference/{name}.md" for name in PAGES]
    named = {page for pages in result.values() for page in pages}
    for page in sorted(staged - named):
        result[_FOLDERS.get(page.split("/")[0], "How to")].append(page)
    return result


def menu(docs: Path) -> list[Any]:
    """Return the menu in the form that the site generator takes."""
    items: list[Any] = [{"Home": "index.md"}]
    for name, pages in sections(docs).items():
        titled = [{examples.title((docs / page).read_text()): page} for page in pages]
        items += [{name: titled}] if titled else []
    return items
