"""Budgets without features: from a confusion matrix, from a hierarchy, or random."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, SupportsIndex

import numpy as np
from torch import Tensor

from randomset._core.checks import checked_classes, is_whole
from randomset.belief.budget import Budget
from randomset.budgeting.gaussians import Floats
from randomset.budgeting.overlap import check_num_sets, knee
from randomset.budgeting.search import Focal, Patterns, best_sets
from randomset.errors import BudgetError, RandomSetWarning, ShapeError

__all__ = ["from_confusion", "from_hierarchy", "random_sets"]

_MAX_MEMBERSHIPS = 2**24


def from_confusion(
    matrix: Any, num_sets: int | Literal["auto"] = 20, classes: SupportsIndex | Iterable[str] | None = None
) -> Budget:
    """Choose the sets of classes that a model confuses.

    Row c of the matrix counts (or averages) the predictions for true class c. Normalised, it is the
    distribution p_c. Sets are ranked by

    overlap(A) = Σ_j min_{c∈A} p_c(j) / Σ_j max_{c∈A} p_c(j),

    the intersection over union of the areas under the distributions. The search is exact and covers sets of
    all sizes. Classes that are never confused form no set; a warning reports if fewer than `num_sets` sets
    are left.

    >>> from_confusion([[95, 5, 0], [30, 70, 0], [0, 10, 90]], 2, ["cat", "dog", "car"])
    Budget(3 classes, 2 sets: {cat, dog}, {dog, car})
    """
    counts = _checked_matrix(matrix)
    if classes is None and hasattr(matrix, "columns"):  # a pandas DataFrame
        classes = [str(name) for name in matrix.columns]
    names = checked_classes(len(counts) if classes is None else classes)
    if len(names) != len(counts):
        raise ShapeError(
            "matrix does not match the classes", got=f"{len(counts)} rows", expected=f"{len(names)}"
        )
    check_num_sets(num_sets, len(names))
    limit = max(100, 4 * len(names)) if num_sets == "auto" else int(num_sets)
    best = best_sets(_levels(counts / counts.sum(1, keepdims=True)), limit)
    chosen = best.first(knee(best.overlaps) if num_sets == "auto" else limit)
    if len(chosen) < limit and num_sets != "auto":
        warnings.warn(
            f"only {len(chosen)} of {limit} sets of classes are confused at all",
            RandomSetWarning,
            stacklevel=2,
        )
    budget = Budget.from_sets(chosen.sets, names)
    overlap = dict(zip(chosen.sets, chosen.overlaps.tolist(), strict=True))
    ordered = [round(overlap[focal], 6) for focal in budget.sets[len(names) :]]
    return budget.with_origin({"method": "confusion matrix", "overlaps": ordered})


def _checked_matrix(matrix: Any) -> Floats:
    try:
        counts = np.asarray(matrix.detach().cpu() if isinstance(matrix, Tensor) else matrix, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ShapeError("confusion matrix must be numeric", got=str(error)) from None
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or len(counts) < 2:
        raise ShapeError(
            "confusion matrix must be square", got=f"shape {counts.shape}", expected="classes × classes"
        )
    if not np.isfinite(counts).all() or (counts < 0).any():
        raise ShapeError("confusion matrix must hold counts or shares", got="negative or non-finite entries")
    empty = np.flatnonzero(counts.sum(1) == 0)
    if len(empty):
        raise ShapeError(
            "a class has no samples in the confusion matrix",
            got=f"row {int(empty[0])} is zero",
            remedy="Use data with every class; rows are true classes, columns are predictions",
        )
    return counts


def _levels(shares: Floats) -> Patterns:
    """Slice the areas under the distributions into levels, each with the classes that reach it."""
    reached = shares > 0
    sizes = reached.sum(0)
    if (sizes * (sizes + 1) // 2).sum() > _MAX_MEMBERSHIPS:
        raise ShapeError(
            "confusion matrix is too dense for its size",
            got=f"{int(reached.sum())} non-zero entries, {len(shares)} classes",
            remedy="Set negligible entries, for example those below 0.001, to zero",
        )
    classes: list[int] = []
    starts, heights = [0], []
    for j in range(shares.shape[1]):
        order = np.argsort(-shares[:, j], kind="stable")[: sizes[j]].tolist()
        levels = [*shares[order, j].tolist(), 0.0]
        for size, (high, low) in enumerate(itertools.pairwise(levels), start=1):
            if high > low:
                classes += sorted(order[:size])
                starts.append(len(classes))
                heights.append(high - low)
    return Patterns(np.array(starts), np.array(classes), np.array(heights)[:, None], len(shares))


def from_hierarchy(
    tree: Mapping[str, Any] | Sequence[Any], classes: Iterable[str] | None = None, num_sets: int | None = None
) -> Budget:
    """Choose the sets of classes below each inner node of a hierarchy.

    The tree is nested, {"animal": {"pet": ["cat", "dog"], "wild": ["wolf"]}, …}, or maps each name to its
    parents, {"cat": "pet", "dog": "pet", "pet": "animal", …}, with a list for several as in WordNet. The
    classes are its leaves in order, or the names in `classes`, which may be inner nodes. In a nested tree,
    groups of the same name in different places are distinct. `num_sets` keeps only the smallest sets, with
    ties in class order. The budget need not be downward closed.

    >>> from_hierarchy({"animal": {"pet": ["cat", "dog"], "wild": ["wolf"]}, "vehicle": ["car", "truck"]})
    Budget(5 classes, 4 sets: {cat, dog}, {car, truck}, {cat, dog, wolf}, {cat, dog, wolf, car, truck})
    >>> from_hierarchy({"cat": "pet", "dog": "pet", "wolf": "animal", "pet": "animal"}, num_sets=1)
    Budget(3 classes, 1 set: {cat, dog})
    """
    if isinstance(tree, str) or not isinstance(tree, Iterable) or not tree:
        raise BudgetError(
            "invalid hierarchy", got=repr(tree), expected="a nested mapping or list, or a mapping to parents"
        )
    if num_sets is not None:
        check_num_sets(num_sets, 1000, auto=False)
    if isinstance(classes, str) or not (classes is None or isinstance(classes, Iterable)):
        raise BudgetError(
            "classes must be a list of names in the hierarchy",
            got=repr(classes),
            remedy=f"Pass a number of sets by keyword: num_sets={classes}" if is_whole(classes, 0) else "",
        )
    classes = None if classes is None else list(classes)
    maps_parents = _maps_to_parents(tree, classes)
    children = _children_from_parents(tree) if maps_parents else _children_from_nested(tree)
    inner = {node for node, below in children.items() if below}
    leaves = list(dict.fromkeys(_name(node) for node in children if node not in inner))
    if not leaves and classes is None:
        raise BudgetError("hierarchy contains a cycle", got="no leaves")
    names = checked_classes(leaves if classes is None else classes)
    position = {name: i for i, name in enumerate(names)}
    if unknown := set(names) - set(map(_name, children)):
        raise BudgetError("class is not in the hierarchy", got=min(unknown, key=names.index))
    below: dict[Node, frozenset[int]] = {}
    groups = {_descend(node, children, position, below, ()) for node in inner}
    sets = sorted((tuple(sorted(s)) for s in groups if len(s) > 1), key=lambda s: (len(s), s))
    if num_sets is not None and num_sets > len(sets):
        expected = f"at most {len(sets)}"
        raise BudgetError("num_sets exceeds the sets in the hierarchy", got=num_sets, expected=expected)
    return Budget.from_sets(sets[:num_sets], names).with_origin({"method": "hierarchy"})


def _maps_to_parents(tree: Any, classes: list[str] | None) -> bool:
    """Return whether the tree maps names to parents: some value is a string, or every class is a key."""
    if not isinstance(tree, Mapping):
        return False
    plain = any(isinstance(above, str) for above in tree.values())
    return plain or (bool(classes) and all(name in tree for name in classes or ()))


Node = str | tuple[str, ...]
"""A name or, in a nested tree, the path to it from the root, with "" for unnamed groups."""


def _name(node: Node) -> str:
    return node if isinstance(node, str) else node[-1]


def _children_from_parents(parents: Any) -> dict[Node, list[Node]]:
    children: dict[Node, list[Node]] = {name: [] for name in parents}
    for name, above in parents.items():
        for parent in [above] if isinstance(above, str) else above or ():
            children.setdefault(parent, []).append(name)
    return children


def _children_from_nested(tree: Any) -> dict[Node, list[Node]]:
    root = ("",)
    children: dict[tuple[str, ...], list[tuple[str, ...]]] = {root: []}

    def add(parent: tuple[str, ...], *path: str) -> tuple[str, ...]:
        node = (*parent, *path)
        children[parent].append(node)
        children.setdefault(node, [])
        return node

    def visit(subtree: Any, parent: tuple[str, ...]) -> None:
        if isinstance(subtree, Mapping):
            for name, below in subtree.items():
                visit(below, add(parent, name))
        elif isinstance(subtree, str):
            add(parent, subtree)
        elif isinstance(subtree, Iterable):
            for number, child in enumerate(subtree):
                if isinstance(child, str):
                    add(parent, child)
                else:  # an unnamed group
                    visit(child, add(parent, f"{number}", ""))
        elif subtree is not None:
            raise BudgetError("hierarchy node must be a name or a collection", got=subtree)

    visit(tree, root)
    groups: dict[str, list[tuple[str, ...]]] = {}
    for node, below in children.items():
        if below:
            groups.setdefault(node[-1], []).append(node)
    for node, below in children.items():
        same = groups.get(node[-1], [])
        if not below and len(same) == 1 and same[0] != node[: len(same[0])]:
            below.append(same[0])  # a group defined elsewhere: {"animal": ["pet"], "pet": ["cat"]}
    return {node: list(below) for node, below in children.items()}


def _descend(
    node: Node,
    children: dict[Node, list[Node]],
    position: dict[str, int],
    below: dict[Node, frozenset[int]],
    path: tuple[Node, ...],
) -> frozenset[int]:
    """Return the classes at or below a node."""
    if node in path:
        raise BudgetError("hierarchy contains a cycle", got=" → ".join(map(_name, [*path, node])))
    if node not in below:
        name = _name(node)
        own = frozenset([position[name]]) if name in position else frozenset()
        parts = (_descend(child, children, position, below, (*path, node)) for child in children[node])
        below[node] = own.union(*parts)
    return below[node]


def random_sets(
    classes: SupportsIndex | Iterable[str],
    num_sets: int | None = None,
    *,
    like: Budget | None = None,
    seed: int = 0,
) -> Budget:
    """Draw random sets of two or more classes, as a baseline.

    All sets are equally likely; with `like`, each size occurs as often as in that budget.

    >>> chosen = Budget.from_sets([{0, 1}, {2, 3}, {0, 1, 2}], 5)
    >>> drawn = random_sets(5, like=chosen, seed=1)
    >>> [len(focal) for focal in drawn.sets[5:]]
    [2, 2, 3]
    """
    names = checked_classes(classes)
    n = len(names)
    if (like is None) == (num_sets is None):
        raise BudgetError("pass either num_sets or like", got=f"num_sets={num_sets}, like={like}")
    generator = np.random.default_rng(seed)
    chosen: set[Focal] = set()
    if like is not None:
        if like.num_classes != n:
            raise BudgetError("like has another number of classes", got=like.num_classes, expected=f"{n}")
        for size, count in Counter(map(len, like.sets[n:])).items():
            same_size: set[Focal] = set()
            while len(same_size) < count:
                same_size.add(tuple(sorted(generator.choice(n, size, replace=False).tolist())))
            chosen |= same_size
    else:
        check_num_sets(num_sets, n, auto=False)
        while len(chosen) < int(num_sets or 0):
            members = np.flatnonzero(generator.random(n) < 0.5)
            if len(members) > 1:
                chosen.add(tuple(members.tolist()))
    return Budget.from_sets(sorted(chosen), names).with_origin({"method": "random sets", "seed": seed})
