import dataclasses
import shutil

import pytest

from randomset.errors import MissingPackageError
from reproduction import SCALES, Workshop, exhibit
from tests.reproduction.commands import reproduce, uses_tiny_results


def test_folders_follow_from_the_configuration(tmp_path):
    shop = Workshop(SCALES["tiny"], tmp_path)
    config = shop.config("mnist")
    assert shop.place(config) == shop.place(shop.config("cifar10"))  # both are the digits
    others = [dataclasses.replace(config, seed=1), dataclasses.replace(config, alpha=0.1)]
    assert len({shop.place(each) for each in (config, *others)}) == 3
    assert shop.config("mnist", "softmax").num_sets == 20  # options of the sets do not concern it


def test_missing_package_stops_training_but_not_the_list(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    shop = Workshop(SCALES["cpu"], tmp_path)
    configs = exhibit("table-17").models(shop)
    with pytest.raises(MissingPackageError, match=r"randomset\[umap\]"):
        shop.train(configs)
    assert not (tmp_path / "models").exists()


@pytest.mark.slow
def test_missing_data_stop_before_any_training(tmp_path):
    (tmp_path / "empty").mkdir()
    done = reproduce("run", "table-8", cwd=tmp_path, RANDOMSET_DATA=str(tmp_path / "empty"))
    assert done.returncode == 2
    assert "data set cifar10 not found" in " ".join(done.stderr.split())
    assert "Model 1" not in done.stdout


def test_data_and_networks_are_checked(tmp_path, monkeypatch):
    checked: list[tuple[str, str]] = []
    networks: list[str] = []
    monkeypatch.setattr("reproduction.workshop.files_of", lambda name, split: checked.append((name, split)))
    monkeypatch.setattr("reproduction.workshop.check_name", networks.append)
    shop, text = Workshop(SCALES["full"], tmp_path), exhibit("table-19")
    shop.check(text.data, text.models(shop))
    assert checked == [("bbc", "train"), ("bbc", "test"), ("emotion", "test")]
    assert networks == ["hf:google/bert_uncased_L-4_H-512_A-8"]


def test_remaining_time_is_estimated_from_similar_models(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", "randomset")
    shop = Workshop(SCALES["tiny"], tmp_path, 2)
    seconds = {"softmax": 60, "ensemble": 300}

    def trained(config):
        place = shop.place(config)
        place.mkdir(parents=True)
        (place / "test.json").touch()
        (place / "seconds.json").write_text(str(seconds[config.method]), encoding="utf-8")

    monkeypatch.setattr(shop, "trained", trained)
    shop.train([shop.config("mnist", method, seed) for seed in (0, 1) for method in seconds], then=120)
    ends = [
        line.partition(f"seed {seed}")[2] for line, seed in zip(caplog.messages, (0, 0, 1, 1), strict=True)
    ]
    # Nothing is known; 1 min for each of three and 2 to follow; 1 + 5 + 2; 5 + 2.
    assert ends == ["", *(f", about {minutes} min to go" for minutes in (5, 8, 7))]


class TestTiny:
    pytestmark = uses_tiny_results

    def test_truncated_evaluation_is_measured_again(self, made, tmp_path):
        shop = Workshop(SCALES["tiny"], tmp_path)
        config = shop.config("mnist")
        run = shop.place(config)
        shutil.copytree(made.shop.place(config), run, ignore=shutil.ignore_patterns("measured"))
        first = shop.evaluation("mnist", config)
        (path,) = (run / "measured").rglob("evaluation.json")
        path.write_text(path.read_text(encoding="utf-8")[:100], encoding="utf-8")
        assert shop.evaluation("mnist", config)["test"] == first["test"]
        assert first["test"]["accuracy"] == pytest.approx(
            made.numbers("table-2")["mnist"]["rsnn"]["accuracy"][0], abs=1e-5
        )
