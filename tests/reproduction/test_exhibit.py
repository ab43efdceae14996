import json
import math
import re
from pathlib import Path

import pytest

import reproduction
from randomset.errors import FileFormatError
from reproduction import Outcome, exhibit, exhibits
from reproduction.exhibit import mean_of, moments, over_seeds
from tests.reproduction.commands import uses_tiny_results


class TestTiny:
    pytestmark = uses_tiny_results

    @pytest.mark.parametrize("item", exhibits(), ids=lambda item: item.id)
    def test_result_table_and_figures_are_written(self, made, item):
        outcome = made.outcome(item.id)
        assert (outcome.id, outcome.scale, outcome.seeds) == (item.id, "tiny", 1)
        assert item.verdict(outcome.numbers) in made.output
        text = (made.place(item.id) / "table.md").read_text(encoding="utf-8")
        assert "nan" not in re.split(r"\W+", text.lower())
        for table in made.tables(item.id):
            assert len(table) > 1
            assert {len(row) for row in table} == {len(table[0])}
            assert all(cell for row in table for cell in row)
        if item.id.startswith("figure"):
            assert next(path.read_bytes()[:4] for path in made.place(item.id).glob("*.png")) == b"\x89PNG"

    def test_exhibits_agree_on_the_same_model(self, made):
        accuracy = made.numbers("table-1")["accuracy"]["cifar10"]["rsnn"]
        model = made.numbers("table-2")["cifar10"]["rsnn"]
        assert model["accuracy"] == accuracy
        assert made.numbers("table-16")["budget"] == model
        assert made.numbers("table-17")["PCA"] == model  # the default reducer
        assert made.numbers("table-3")["cifar10"] == made.numbers("table-8")["rsnn"] == model
        assert made.numbers("table-4")["small CNN"]["rsnn"]["accuracy"] == accuracy
        ((width,),) = (made.numbers("figure-7")["width"],)
        assert width == pytest.approx(model["width"]["mean"][0], abs=1e-5)
        rows = {(row["name"], row["value"]): row for row in made.numbers("figure-26")["rows"]}
        rows |= {(row["name"], row["value"]): row for row in made.numbers("figure-27")["rows"]}
        for key in (("alpha", 0.001), ("beta", 0.001), ("num_sets", 8)):  # as the scale has it
            assert {name: rows[key][name] for name in model} == model

    def test_exhibits_agree_with_the_stored_evaluation(self, made):
        shop = made.shop
        result = shop.evaluation("cifar10", shop.config("cifar10"))
        model = made.numbers("table-2")["cifar10"]["rsnn"]
        prediction, labels = result.predictions["test"], result.labels["test"]
        accuracy = (prediction.labels == labels).double().mean().item()
        assert 0.5 < accuracy <= 1  # ten classes, four epochs
        assert model["accuracy"] == [pytest.approx(accuracy, abs=1e-5)]
        for name, score in (("entropy", "entropy"), ("width", "credal width")):
            values = prediction.scores[score].double()
            assert model[name]["mean"] == [pytest.approx(values.mean().item(), rel=1e-4)]
            unknown = result.predictions["svhn"].scores[score].double()
            assert model["unknown"]["svhn"][name]["mean"] == [pytest.approx(unknown.mean().item(), rel=1e-4)]
        known, unknown = (result.predictions[name].scores["entropy"] for name in ("test", "svhn"))
        higher = (unknown[:, None] > known).double() + 0.5 * (unknown[:, None] == known)
        assert model["unknown"]["svhn"]["auroc"] == [pytest.approx(higher.mean().item(), abs=1e-4)]


class TestOutcome:
    outcome = Outcome("table-6", "tiny", 2, 10.4, 1.6, 3.0, {"seconds": {"rsnn": [1.23456789]}})

    def test_save_and_load(self, tmp_path):
        loaded = Outcome.load(self.outcome.save(tmp_path))
        assert loaded == Outcome("table-6", "tiny", 2, 10, 2, 3, {"seconds": {"rsnn": [1.23457]}})
        assert loaded.seconds == 15

    def test_file_of_another_format(self, tmp_path):
        (tmp_path / "result.json").write_text(json.dumps({"format": "other"}))
        with pytest.raises(FileFormatError, match="the result of a table or figure cannot be read"):
            Outcome.load(tmp_path / "result.json")

    def test_field_of_the_wrong_type(self, tmp_path):
        path = self.outcome.save(tmp_path)
        content = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**content, "seeds": "two"}), encoding="utf-8")
        with pytest.raises(FileFormatError, match="seeds is missing or has the wrong type"):
            Outcome.load(path)

    def test_numbers_of_another_table(self):
        with pytest.raises(FileFormatError, match=r"does not have the numbers of its table.*softmax"):
            exhibit("table-6").text(self.outcome)


def test_stored_results_fit_their_tables():
    stored = sorted(Path(reproduction.__file__).parent.glob("results/*/*.json"))
    assert {path.stem for path in stored} == {item.id for item in exhibits()}
    for path in stored:
        outcome = Outcome.load(path)
        assert (outcome.id, outcome.scale) == (path.stem, path.parent.name)
        text = exhibit(outcome.id).text(outcome)
        assert text.endswith(exhibit(outcome.id).verdict(outcome.numbers))
        assert "nan" not in re.split(r"\W+", text.lower())


def test_gpu_hours_count_every_model_once(tmp_path):
    shop = reproduction.Workshop(reproduction.SCALES["full"], tmp_path)
    # Five seeds of RS-NN and CNN: 113.23 and 85.333 minutes.
    assert exhibit("table-8").gpu_hours(shop) == pytest.approx(5 * (113.23 + 85.333) / 60)
    assert exhibit("figure-4").gpu_hours(shop) == 0


def test_formats():
    assert over_seeds([0.5, None]) == "50.00"
    assert over_seeds([]) == "–"
    assert over_seeds([1.0, 3.0], 1, 1) == "2.0 ± 1.4"
    assert moments({"mean": [0.1, 0.3], "std": [1.0, 2.0]}) == "0.200 ± 1.500"
    assert mean_of([1, None, 2]) == 1.5
    assert math.isnan(mean_of(None))
