"""What people look at: figures."""

from randomset.report.belief_figures import plot_bars, plot_simplex
from randomset.report.budget_figures import plot_clusters, plot_clusters_3d, plot_overlaps

__all__ = ["plot_bars", "plot_clusters", "plot_clusters_3d", "plot_overlaps", "plot_simplex"]
