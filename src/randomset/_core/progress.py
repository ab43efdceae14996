"""Progress bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["on_terminal", "progress_bar"]


def on_terminal() -> bool:
    """Return whether the error stream is a terminal or a notebook."""
    from rich.console import Console

    console = Console(stderr=True)
    return console.is_terminal or console.is_jupyter


@contextmanager
def progress_bar(
    description: str, total: float | None, shown: bool | None = None
) -> Iterator[Callable[[float], object]]:
    """Show a progress bar on the error stream; yields a function that advances it.

    `shown=None` shows the bar on a terminal or in a notebook only. Without a total, the bar only indicates
    activity. A finished bar disappears.

    >>> with progress_bar("counting", 3, shown=False) as advance:
    ...     for _ in range(3):
    ...         advance(1)
    """
    if shown is False:  # importing rich would slow down short calls
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import Progress, TimeRemainingColumn

    console, hidden = Console(stderr=True), shown is None and not on_terminal()
    columns = (*Progress.get_default_columns()[:-1], TimeRemainingColumn(elapsed_when_finished=True))
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(description, total=total)
        yield lambda amount: bar.advance(task, amount)
