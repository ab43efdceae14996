"""Show the examples of docstrings as code: Markdown would take their prompts for quotations."""

from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Put a fence around every run of doctest lines."""

    def on_object(self, *, obj: griffe.Object, **options: Any) -> None:
        """Rewrite the docstring of anything that is documented."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Return a docstring with its examples, prompts and output, in fences."""
    lines, inside = [], False
    for line in text.splitlines():
        if line.startswith(">>>") and not inside:
            lines.append("```pycon")
            inside = True
        elif not line.strip() and inside:
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)
