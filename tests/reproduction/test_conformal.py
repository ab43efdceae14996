import math

from reproduction import exhibit
from tests.reproduction.commands import percent, rounded, uses_tiny_results, value


def test_two_sets_verdict():
    verdict = exhibit("figure-8").verdict
    assert verdict({"sure": {"set": ["a"]}, "unsure": {"set": ["a", "b"]}}).endswith("as in the paper.")
    assert verdict({"sure": {"set": ["a"]}, "unsure": {"set": ["b"]}}).startswith("Unlike in the paper")


def test_coverage_verdict():
    classes = {"cat": {"coverage": [0.9, 0.94]}, "dog": {"coverage": [0.99, 0.97]}}
    text = exhibit("figure-10").verdict({"coverage": [0.95, 0.96], "size": [2.0, 3.0], "classes": classes})
    assert "true class of 95.50 ± 0.71 % of samples, with 2.50 ± 0.71 classes on average" in text
    assert "lowest for cat, 92.00 ± 2.83 %" in text


class TestTiny:
    pytestmark = uses_tiny_results

    def test_coverage_tables(self, made):
        assert made.numbers("figure-10") == made.numbers("figure-11")
        numbers, table = made.numbers("figure-10"), made.table("figure-10")
        rows = {"all": numbers, **numbers["classes"]}
        assert list(table) == list(rows)
        for name, row in rows.items():
            assert value(table[name][0]) == percent(row["coverage"][0])
            assert value(table[name][1]) == rounded(row["size"][0])
        covered = [row["coverage"][0] for row in numbers["classes"].values()]
        assert min(covered) <= numbers["coverage"][0] <= max(covered)

    def test_threshold_is_the_conformal_quantile(self, made):
        numbers = made.numbers("figure-9")
        count, scores = numbers["samples"], numbers["scores"]
        assert len(scores) == count
        rank = min(math.ceil((count + 1) * 0.95), count)
        assert numbers["threshold"] == sorted(scores)[rank - 1]
        (row,) = made.tables("figure-9")[0][1:]
        assert row == [str(count), f"{numbers['threshold']:.4f}"]

    def test_two_sets(self, made):
        numbers, table = made.numbers("figure-8"), made.table("figure-8")
        for name, title in (("sure", "certain"), ("unsure", "uncertain")):
            sample = numbers[name]
            assert table[title] == [sample["label"], ", ".join(sample["set"])]
            assert sum(sample["probabilities"].values()) == rounded(1.0)
        certain, uncertain = (max(numbers[name]["probabilities"].values()) for name in ("sure", "unsure"))
        assert certain > uncertain
