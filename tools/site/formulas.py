"""Formulas of the pages: LaTeX in the repository, MathML on the site.

Browsers draw MathML by themselves, so the site needs no script and no fonts for it, and opens from
a file. GitHub draws the same LaTeX.
"""

from __future__ import annotations

import re

_BLOCK = re.compile(r"^```math\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"\$`([^`]+)`\$")


def block(fence: str) -> str:
    r"""Return a fenced block; one of the language `math` becomes a formula on its own line.

    >>> block("```math\nx\n```")
    '<div class="formula"><math display="block"><mrow><mi>x</mi></mrow></math></div>'
    >>> block("```python\nx\n```")
    '```python\nx\n```'
    """
    match = _BLOCK.fullmatch(fence)
    return fence if match is None else f'<div class="formula">{_mathml(match[1], "block")}</div>'


def inline(text: str) -> str:
    """Return text in which formulas, LaTeX between $` and `$, are MathML.

    >>> inline("the mean $`m`$, say")
    'the mean <math display="inline"><mrow><mi>m</mi></mrow></math>, say'
    """
    return _INLINE.sub(lambda match: _mathml(match[1], "inline"), text)


def _mathml(latex: str, display: str) -> str:
    from latex2mathml.converter import convert

    tagged = str(convert(" ".join(latex.split()), display=display))
    return tagged.replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "")  # HTML needs none
