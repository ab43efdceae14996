"""Registry of classifiers by method name, as in `randomset train --method NAME`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from randomset.errors import RandomSetError

if TYPE_CHECKING:
    from randomset.models.base import Classifier

__all__ = ["classifier_class", "methods", "register"]

_CLASSES: dict[str, type[Classifier]] = {}
_C = TypeVar("_C", bound="type[Classifier]")


def register(name: str) -> Callable[[_C], _C]:
    """Register a subclass of `Classifier` under a method name.

    >>> from randomset.models import Softmax
    >>> @register("wide-softmax")
    ... class WideSoftmax(Softmax):
    ...     pass
    >>> WideSoftmax.method, classifier_class("wide-softmax") is WideSoftmax
    ('wide-softmax', True)
    >>> del _CLASSES["wide-softmax"]
    """

    def add(cls: _C) -> _C:
        known = _CLASSES.get(name)
        if known is not None and known.__module__.startswith("randomset.") and known.__name__ != cls.__name__:
            raise RandomSetError(
                "this method name is already registered",
                got=name,
                expected=f"a name other than {', '.join(methods())}",
            )
        _CLASSES[name] = cls
        cls.method = name
        return cls

    return add


def methods() -> tuple[str, ...]:
    """Return the names of all methods, the random-set network's first."""
    return tuple(sorted(_CLASSES, key=lambda name: (name != "rsnn", name)))


def classifier_class(name: str) -> type[Classifier]:
    """Return the class registered under a method name."""
    if name not in _CLASSES:
        raise RandomSetError("unknown method", got=name, expected=f"one of {', '.join(methods())}")
    return _CLASSES[name]
