"""Formulas of the pages: LaTeX in the repository, MathML on the site.

Browsers draw MathML by themselves, so the site needs no script and no fonts for it, and opens from
a file. GitHub draws the same LaTeX.
"""

from __future__ import annotations

import re

_BLOCK = re.compile(r"^```math\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"\\[A-Za-z]+")
_LOGARITHM = re.compile(r"<mi>log</mi>(?!<mo)")
_THIN_SPACE = '<mspace width="0.167em" />'
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

    The span keeps a formula at the beginning of a line inside its paragraph.

    >>> inline("the mean $`m`$, say")
    'the mean <span><math display="inline"><mrow><mi>m</mi></mrow></math></span>, say'
    """
    return _INLINE.sub(lambda match: f"<span>{_mathml(match[1], 'inline')}</span>", text)


def _mathml(latex: str, display: str) -> str:
    r"""Return a formula as MathML, in HTML.

    >>> _mathml(r"\unknown x", "inline")
    Traceback (most recent call last):
    ValueError: latex2mathml does not know \unknown in the formula \unknown x
    """
    from latex2mathml.converter import convert

    one_line = " ".join(latex.split())
    tagged = str(convert(one_line, display=display))
    tagged = tagged.replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "")
    tagged = tagged.replace(r"<mi>\arg</mi>", f"<mi>arg</mi>{_THIN_SPACE}")
    tagged = _LOGARITHM.sub(rf"<mi>log</mi>{_THIN_SPACE}", tagged)
    unknown = _COMMAND.search(tagged)
    if unknown:
        raise ValueError(f"latex2mathml does not know {unknown[0]} in the formula {one_line}")
    return tagged
