"""The worked example of the paper's Section 2: three classes, three focal sets, and all that follows.

Prints a table and writes a picture of the credal set.
"""

from pathlib import Path

import torch

import randomset as rs
from randomset.report import plot_bars, plot_simplex

OUT = Path("demo")


def main() -> None:
    """Run the example from top to bottom."""
    # A witness of the classes c1, c2, c3: half sure of c1, a little of c3, and otherwise "c1 or c2".
    budget = rs.Budget.powerset(["c1", "c2", "c3"])
    mass = torch.zeros(len(budget))
    mass[budget.index(["c1"])] = 0.5
    mass[budget.index(["c3"])] = 0.1
    mass[budget.index(["c1", "c2"])] = 0.4
    answer = rs.RandomSet.from_mass(mass, budget)

    print("The belief function of Section 2\n")
    print(f"{'set':<16}{'mass':>8}{'belief':>9}{'plausibility':>15}")
    for k, name in enumerate(budget.set_names):
        row = (answer.mass[k], answer.belief[k], answer.plausibility[k])
        print(f"{name:<16}{row[0]:>8.2f}{row[1]:>9.2f}{row[2]:>15.2f}")

    print(f"\n{'class':<16}{'lower':>8}{'BetP':>9}{'upper':>15}")
    for c, name in enumerate(budget.classes):
        print(f"{name:<16}{answer.lower[c]:>8.2f}{answer.pignistic[c]:>9.2f}{answer.upper[c]:>15.2f}")

    print(f"\n{answer.explain()}")
    print(
        f"entropy {answer.entropy:.3f} bits (in the credal set: {answer.lower_entropy:.3f} to "
        f"{answer.upper_entropy:.3f}), credal width {answer.credal_width:.2f}, "
        f"non-specificity {answer.nonspecificity:.2f} bits"
    )

    OUT.mkdir(exist_ok=True)
    plot_simplex(answer).savefig(OUT / "credal_set.png", dpi=150)
    plot_bars(answer).savefig(OUT / "masses.png", dpi=150)
    print(f"\nWrote {OUT / 'credal_set.png'} and {OUT / 'masses.png'}.")
    print("Next: read README.md, or open docs/belief-functions.md for what these numbers mean.")


if __name__ == "__main__":
    main()
