from reproduction import exhibit
from tests.reproduction.commands import percent, rounded, uses_tiny_results, value

verdict = exhibit("figure-26").verdict


def test_verdict_names_the_best_value_and_its_margin():
    rows = [("alpha", 0.001, 0.8), ("alpha", 0.1, 0.75), ("beta", 0.001, 0.6), ("beta", 0.1, 0.61)]
    numbers = {"rows": [{"name": name, "value": value, "accuracy": [share]} for name, value, share in rows]}
    assert verdict(numbers) == (
        "In points of accuracy, the best α is 0.001 (paper: 0.001), 5.00 above the worst; the best β is 0.1 "
        "(paper: 0.001), 1.00 above the worst."
    )
    counts = [{"name": "num_sets", "value": k, "accuracy": [s]} for k, s in ((0, 0.7), (20, 0.72))]
    assert "the best K is 20 (paper: 20), 2.00 above" in verdict({"rows": counts})


class TestTiny:
    pytestmark = uses_tiny_results

    def test_tables(self, made):
        for id, symbols in (("figure-26", {"alpha": "α", "beta": "β"}), ("figure-27", {"num_sets": "K"})):
            table, rows = made.table(id), made.numbers(id)["rows"]
            assert len(table) == len(rows)
            for row in rows:
                accuracy, ece, entropy, width, negative, *areas = table[
                    f"{symbols[row['name']]} = {row['value']:g}"
                ]
                assert value(accuracy) == percent(row["accuracy"][0])
                assert value(ece) == rounded(row["ece"][0], 4)
                assert value(entropy) == rounded(row["entropy"]["mean"][0])
                assert value(width) == rounded(row["width"]["mean"][0])
                assert value(negative) == percent(row["negative"][0])
                for cell, unknown in zip(areas, row["unknown"].values(), strict=True):
                    assert value(cell) == percent(unknown["auroc"][0])

    def test_singletons_have_no_credal_width_beyond_the_universal_set(self, made):
        rows = {row["value"]: row for row in made.numbers("figure-27")["rows"]}
        assert set(rows) == {0, 8}
        assert rows[0]["negative"] == [0]  # belief and mass of a singleton are the same
