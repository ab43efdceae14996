"""What people look at: figures."""

from randomset.report.belief_figures import plot_bars, plot_simplex

__all__ = ["plot_bars", "plot_simplex"]
