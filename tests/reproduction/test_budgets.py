import pytest

from reproduction import exhibit
from tests.reproduction.commands import percent, rounded, uses_tiny_results, value


def test_power_set_verdict():
    def models(budget):
        accuracy = {"budget": budget, "every set, clip": 0.5, "every set, projection": 0.6}
        return {name: {"accuracy": [share]} for name, share in accuracy.items()}

    verdict = exhibit("table-16").verdict
    assert verdict(models(0.7)).endswith(
        "is confirmed: 70.0 % against 50.0 %. Other variants of the power set: projection 60.0 %."
    )
    assert "is not confirmed: 40.0 % against 50.0 %." in verdict(models(0.4))


def test_reducer_verdict():
    def model(accuracy, svhn, intel):
        return {
            "accuracy": accuracy,
            "unknown": {"svhn": {"auroc": [svhn]}, "intel": {"auroc": [intel]}},
        }

    numbers = {"t-SNE": model([0.8, 0.9], 0.7, 0.9), "PCA": model([0.7, 0.9], 0.6, 0.8)}
    text = exhibit("table-17").verdict(numbers)
    assert "in points: PCA 5.00 ± 7.07;" in text
    assert "t-SNE 80.00, PCA 70.00." in text


def test_cluster_verdict():
    verdict = exhibit("figure-28").verdict
    assert "overlap is {1, 8};" in verdict({"sets": ["{0, 1}", "{1, 8}"], "overlaps": [0.1, 0.3]})
    assert "overlap is none;" in verdict({"sets": [], "overlaps": []})


class TestTiny:
    pytestmark = uses_tiny_results

    @pytest.mark.parametrize("id", ["table-16", "table-17", "table-18"])
    def test_tables(self, made, id):
        numbers, table = made.numbers(id), made.table(id)
        assert list(table) == list(numbers)
        for name, model in numbers.items():
            expected = [percent(model["accuracy"][0]), rounded(model["ece"][0], 4)]
            expected += [rounded(model[part]["mean"][0]) for part in ("entropy", "width")]
            for unknown in ("svhn", "intel"):
                found = model["unknown"][unknown]
                expected += [percent(found[part][0]) for part in ("auroc", "auprc")]
                expected += [rounded(found[part]["mean"][0]) for part in ("entropy", "width")]
            assert [value(cell) for cell in table[name]] == expected

    def test_clusters(self, made):
        numbers, table = made.numbers("figure-28"), made.table("figure-28")
        assert len(numbers["sets"]) == len(numbers["overlaps"]) == len(table) == 8
        for name, overlap in zip(numbers["sets"], numbers["overlaps"], strict=True):
            assert 0 <= overlap <= 1
            assert value(table[name][0]) == rounded(overlap, 4)
        shown = [value(cell) for (cell,) in table.values()]
        assert shown == sorted(shown, reverse=True)
