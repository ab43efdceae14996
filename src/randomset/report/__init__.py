"""Figures, and reports as HTML."""

from randomset.report.belief_figures import plot_bars, plot_simplex
from randomset.report.budget_figures import plot_clusters, plot_clusters_3d, plot_overlaps
from randomset.report.detection_figures import (
    plot_conformal,
    plot_curves,
    plot_densities,
    plot_detection,
    plot_entropies,
    plot_levels,
)
from randomset.report.evaluation_figures import (
    draw_all,
    plot_against_confidence,
    plot_intervals,
    plot_reliability,
    plot_widths_by_class,
)
from randomset.report.html import comparison_report, evaluation_report, write_report
from randomset.report.run_report import gallery_of

__all__ = [
    "comparison_report",
    "draw_all",
    "evaluation_report",
    "gallery_of",
    "plot_against_confidence",
    "plot_bars",
    "plot_clusters",
    "plot_clusters_3d",
    "plot_conformal",
    "plot_curves",
    "plot_densities",
    "plot_detection",
    "plot_entropies",
    "plot_intervals",
    "plot_levels",
    "plot_overlaps",
    "plot_reliability",
    "plot_simplex",
    "plot_widths_by_class",
    "write_report",
]
