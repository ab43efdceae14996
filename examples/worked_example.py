"""The worked example of the paper's Section 2: a belief function on three classes, with mass on three sets.

Prints its tables and draws the masses and the credal set.
"""

from pathlib import Path

import torch

import randomset as rs
from randomset.report import plot_bars, plot_simplex

OUT = Path("demo")


def main() -> None:
    """Run the example."""
    # Evidence about the classes c1, c2, c3: 0.5 for c1, 0.1 for c3, and 0.4 for "c1 or c2".
    budget = rs.Budget.powerset(["c1", "c2", "c3"])
    mass = torch.zeros(len(budget))
    mass[budget.index(["c1"])] = 0.5
    mass[budget.index(["c3"])] = 0.1
    mass[budget.index(["c1", "c2"])] = 0.4
    prediction = rs.RandomSet.from_mass(mass, budget)

    print("The belief function of Section 2\n")
    print(f"{'set':<16}{'mass':>8}{'belief':>9}{'plausibility':>15}")
    for k, name in enumerate(budget.set_names):
        row = (prediction.mass[k], prediction.belief[k], prediction.plausibility[k])
        print(f"{name:<16}{row[0]:>8.2f}{row[1]:>9.2f}{row[2]:>15.2f}")

    print(f"\n{'class':<16}{'lower':>8}{'BetP':>9}{'upper':>15}")
    for c, name in enumerate(budget.classes):
        print(
            f"{name:<16}{prediction.lower[c]:>8.2f}{prediction.pignistic[c]:>9.2f}{prediction.upper[c]:>15.2f}"
        )

    print(f"\n{prediction.explain()}")
    print(
        f"entropy {prediction.entropy:.3f} bits (in the credal set: {prediction.lower_entropy:.3f} to "
        f"{prediction.upper_entropy:.3f}), credal width {prediction.credal_width:.2f}, "
        f"non-specificity {prediction.nonspecificity:.2f} bits"
    )

    OUT.mkdir(exist_ok=True)
    plot_simplex(prediction).savefig(OUT / "credal_set.png", dpi=150)
    plot_bars(prediction).savefig(OUT / "masses.png", dpi=150)
    print(f"\nWrote {OUT / 'credal_set.png'} and {OUT / 'masses.png'}.")
    print("Next: docs/belief-functions.md explains these numbers.")


if __name__ == "__main__":
    main()
