import pytest

from reproduction import exhibit
from reproduction.scales import METHODS
from tests.reproduction.commands import percent, rounded, uses_tiny_results, value


def test_area_verdict_names_the_best_method():
    numbers = {"svhn": {"rsnn": [0.9], "softmax": [0.8]}, "intel": {"rsnn": [0.7], "softmax": [0.8]}}
    assert exhibit("figure-12").verdict(numbers).endswith("is that of RS-NN on svhn, CNN on intel.")


def test_ratio_verdict():
    others = {method: [2.0] for method in METHODS}
    numbers = {"a → b": {**others, "rsnn": [3.0]}, "a → c": {**others, "rsnn": [1.0]}}
    assert "in 1 of 2 cases;" in exhibit("figure-18").verdict(numbers)


@pytest.mark.parametrize("id", ["figure-6", "figure-23"])
def test_width_verdict(id):
    verdict = exhibit(id).verdict
    assert verdict({"right": [0.1, 0.2], "wrong": [0.3, None]}).endswith("as in the paper.")
    assert verdict({"right": [0.1, 0.2], "wrong": [0.3, 0.1]}).startswith("Unlike in the paper")


def test_interval_verdict():
    verdict = exhibit("figure-7").verdict
    assert "always lies within the bounds" in verdict({"inside": [1.0, 1.0]})
    assert "contradicts the theory" in verdict({"inside": [1.0, 0.99]})


def test_correlation_verdict():
    numbers = {"test": [-0.9, -0.8], "svhn": [0.2, 0.4]}
    assert exhibit("figure-24").verdict(numbers).endswith("correlation here is 0.85.")
    assert "is closely correlated" in exhibit("figure-24").verdict(numbers)
    assert "credal width is not correlated" in exhibit("figure-25").verdict(numbers)


class TestTiny:
    pytestmark = uses_tiny_results

    @pytest.mark.parametrize("id", ["figure-12", "figure-13", "figure-21", "figure-22"])
    def test_areas_are_those_of_table_2(self, made, id):
        data = "cifar10" if id in ("figure-12", "figure-22") else "mnist"
        numbers, table = made.numbers(id), made.table(id)
        detection = made.numbers("table-2")[data]
        assert len(numbers) == 2
        for index, (name, areas) in enumerate(numbers.items()):
            for method, auroc in areas.items():
                assert auroc == detection[method]["unknown"][name]["auroc"]
                assert value(table[METHODS[method]][index]) == percent(auroc[0])

    def test_ratios_are_those_of_the_entropies_of_table_2(self, made):
        numbers, table = made.numbers("figure-18"), made.table("figure-18")
        assert len(numbers) == 4
        for pair, ratios in numbers.items():
            data, name = pair.split(" → ")
            for cell, (method, (ratio,)) in zip(table[pair], ratios.items(), strict=True):
                model = made.numbers("table-2")[data][method]
                known, unknown = model["entropy"]["mean"][0], model["unknown"][name]["entropy"]["mean"][0]
                assert ratio == pytest.approx(unknown / known, rel=1e-4)
                assert value(cell) == rounded(ratio, 1)

    def test_widths_average_to_that_of_all_predictions(self, made):
        numbers, table = made.numbers("figure-6"), made.table("figure-6")
        assert made.numbers("figure-23") == numbers
        ((right,), (wrong,)) = numbers["right"], numbers["wrong"]
        assert [value(table[name][0]) for name in ("correct", "wrong")] == [rounded(right), rounded(wrong)]
        (accuracy,) = made.numbers("table-1")["accuracy"]["cifar10"]["rsnn"]
        (width,) = made.numbers("figure-7")["width"]
        assert accuracy * right + (1 - accuracy) * wrong == pytest.approx(width, rel=1e-4)

    def test_pignistic_probability_lies_within_the_bounds(self, made):
        numbers = made.numbers("figure-7")
        assert numbers["inside"] == [1.0]
        (row,) = made.tables("figure-7")[0][1:]
        assert [value(cell) for cell in row] == [rounded(numbers["width"][0], 4), 100]

    @pytest.mark.parametrize("id", ["figure-24", "figure-25"])
    def test_correlations(self, made, id):
        numbers, table = made.numbers(id), made.table(id)
        assert set(table) == set(numbers) == {"test", "svhn", "intel"}
        for name, (correlation,) in numbers.items():
            assert -1 <= correlation <= 1
            assert value(table[name][0]) == rounded(correlation)
