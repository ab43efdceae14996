import pytest

from randomset.report.comparison_figures import draw_comparison, plot_curves, plot_entropies
from tests.report.conftest import axes_of, legend_of


def test_every_method_has_a_curve_and_its_area(full):
    roc, _ = axes_of(plot_curves({"rsnn": full, "softmax": full}, "flat"))
    area = full["ood"]["flat"]["scores"]["entropy"]["auroc"]
    assert legend_of(roc) == [f"{area:.3f}  rsnn", f"{area:.3f}  softmax"]


def test_entropy_bars_are_the_means(full):
    (axes,) = axes_of(plot_entropies({"rsnn": full, "softmax": full}))
    assert legend_of(axes) == ["test data", "unknown: flat", "unknown: bright"]
    for name, bars in zip(("test", "flat", "bright"), axes.containers, strict=True):
        mean = full.predictions[name].scores["entropy"].double().mean().item()
        assert [bar.get_height() for bar in bars] == pytest.approx([mean] * 2)


@pytest.mark.slow
def test_draw_comparison_saves_one_figure_per_unknown_data_set(full, tmp_path):
    full.save(tmp_path / "run")
    paths = draw_comparison({"rsnn": tmp_path / "run"}, tmp_path / "figures")
    assert [path.name for path in paths] == ["curves_flat.png", "curves_bright.png", "entropies.png"]
    assert all(path.exists() for path in paths)
