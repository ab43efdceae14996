"""Every table and figure of the paper runs at the smallest scale; the largest is what the paper says."""

import dataclasses
import json
import re

import pytest

from randomset.errors import FileFormatError, MissingPackageError, RandomSetError
from reproduction import SCALES, Outcome, Workshop, exhibit, exhibits
from reproduction.exhibit import over_seeds
from reproduction.measures import beside, lead
from reproduction.page import page_of
from tests.commands import run


def reproduce(*arguments, **options):
    return run(*arguments, program="reproduction", **options)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Everything at the smallest scale, through the command line."""
    folder = tmp_path_factory.mktemp("paper")
    out = reproduce("run", "all", "--scale", "tiny", cwd=folder)
    assert out.returncode == 0, out.stderr
    return folder, out.stdout


class TestList:
    def test_every_table_and_figure_with_numbers_is_there(self):
        ids = {one.id for one in exhibits()}
        tables = set(range(1, 20)) - {5}  # Table 5 are the hyperparameters
        figures = {2, 4, *range(6, 29)}  # the others are drawings
        assert ids == {f"table-{n}" for n in tables} | {f"figure-{n}" for n in figures}

    def test_in_the_papers_order(self):
        ids = [one.id for one in exhibits()]
        assert ids[:3] == ["table-1", "table-2", "table-3"]
        assert ids.index("table-19") < ids.index("figure-2") < ids.index("figure-10")

    def test_an_unknown_one(self):
        with pytest.raises(RandomSetError, match="no such table or figure; got table-5"):
            exhibit("table-5")


@pytest.mark.slow
@pytest.mark.xdist_group("paper")  # what they share takes a minute to make
class TestTiny:
    def test_all_of_them_have_results(self, made):
        folder, said = made
        for one in exhibits():
            place = folder / "paper" / "tiny" / one.id
            outcome = Outcome.load(place / "result.json")
            assert (outcome.scale, outcome.seeds) == ("tiny", 1)
            assert one.verdict(outcome.numbers) in said
            text = (place / "table.md").read_text(encoding="utf-8")
            assert text.count("|") > 8
            assert "nan" not in re.split(r"\W+", text.lower())
            if one.id.startswith("figure"):
                assert next(path.read_bytes()[:4] for path in place.glob("*.png")) == b"\x89PNG"

    def test_numbers_of_different_exhibits_agree(self, made):
        folder, _ = made
        load = lambda id: Outcome.load(folder / "paper" / "tiny" / id / "result.json").numbers  # noqa: E731
        accuracy = load("table-1")["accuracy"]["cifar10"]["rsnn"]
        assert load("table-2")["cifar10"]["rsnn"]["accuracy"] == accuracy
        assert load("table-16")["budget"]["accuracy"] == accuracy
        assert load("figure-27")["rows"][1]["accuracy"] == accuracy  # K = 8, as the scale has it
        attacks = load("table-13")["mnist"]["rsnn"]
        for epsilon, (standing,) in attacks["all of them"].items():
            each = [levels[epsilon][0] for name, levels in attacks.items() if epsilon in levels]
            assert standing == min(standing, *each)

    def test_nothing_is_made_twice(self, made):
        folder, _ = made
        models = folder / "paper" / "tiny" / "models"
        before = {path: path.stat().st_mtime_ns for path in models.rglob("model.safetensors")}
        out = reproduce("run", "table-2", "--scale", "tiny", cwd=folder)
        assert out.returncode == 0, out.stderr
        again = Outcome.load(folder / "paper" / "tiny" / "table-2" / "result.json")
        assert again.reused > again.measuring  # what was measured before counts among its time
        assert "Model 1" not in out.stdout
        assert "Measuring" not in out.stdout
        assert {path: path.stat().st_mtime_ns for path in models.rglob("model.safetensors")} == before

    def test_list_table_and_page(self, made):
        folder, _ = made
        listed = reproduce(cwd=folder).stdout
        pattern = (
            r"table-1 .*needs mnist, cifar10, intel; tiny \d+ s, .*full 1235 h on a GPU; results here: tiny, "
            r"with the library: cpu"
        )
        assert re.search(pattern, listed)  # 5 × 5 × 2,964 minutes by the paper's Table 6
        table = reproduce("table", "table-3", "--scale", "tiny", cwd=folder).stdout
        assert "Width of the credal set" in table
        assert "result.json" in table.splitlines()[0]
        assert "as it comes with the library" in reproduce("table", "table-3", cwd=folder).stdout
        assert "(0.007)" in table  # the paper's
        assert reproduce("page", "--scale", "tiny", "--out", "p/paper.md", cwd=folder).returncode == 0
        page = (folder / "p" / "paper.md").read_text(encoding="utf-8")
        for one in exhibits():
            assert f"`python -m reproduction run {one.id} --scale tiny --seeds 1`" in page
        for path in re.findall(r"!\[.*\]\((.*)\)", page):
            assert (folder / "p" / path).exists()

    def test_an_evaluation_that_was_cut_short_is_made_again(self, made):
        folder, _ = made
        shop = Workshop(SCALES["tiny"], folder / "paper" / "tiny")
        config = shop.config("mnist")
        first = shop.evaluation("mnist", config)
        for path in (shop.place(config) / "measured").rglob("evaluation.json"):
            path.write_text(path.read_text(encoding="utf-8")[:100], encoding="utf-8")
        assert shop.evaluation("mnist", config)["test"] == first["test"]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("run", "table-99"), "the paper has no such table or figure; got table-99"),
            (("run", "table-1", "--scale", "huge"), "unknown scale; got huge"),
            (("run", "table-1", "--seeds", "0"), "--seeds is out of range"),
            (("table", "table-1", "--scale", "huge"), "unknown scale; got huge"),
            (
                ("table", "table-1", "--scale", "full"),
                "First: python -m reproduction run table-1 --scale full",
            ),
            (("page", "--scale", "full"), "First: python -m reproduction run all --scale full"),
        ],
    )
    def test_mistakes(self, tmp_path, arguments, message):
        out = reproduce(*arguments, cwd=tmp_path)
        assert out.returncode == 2
        assert message in " ".join(out.stderr.split())


class TestWorkshop:
    def test_a_place_for_every_configuration(self, tmp_path):
        shop = Workshop(SCALES["tiny"], tmp_path)
        config = shop.config("mnist")
        assert shop.place(config) == shop.place(shop.config("cifar10"))  # both are the digits
        others = [dataclasses.replace(config, seed=1), dataclasses.replace(config, alpha=0.1)]
        assert len({shop.place(one) for one in (config, *others)}) == 3
        assert shop.config("mnist", "softmax").num_sets == 20  # which sets there are does not concern it

    def test_a_package_that_is_missing_is_noticed_before_any_training_and_not_by_the_list(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        shop = Workshop(SCALES["cpu"], tmp_path)
        configs = exhibit("table-17").models(shop)
        with pytest.raises(MissingPackageError, match=r"randomset\[umap\]"):
            shop.train(configs)
        assert not (tmp_path / "models").exists()

    def test_what_is_not_here_is_noticed_before_any_training(self, tmp_path, monkeypatch):
        (tmp_path / "empty").mkdir()
        out = reproduce("run", "table-8", cwd=tmp_path, RANDOMSET_DATA=str(tmp_path / "empty"))
        assert out.returncode == 2
        assert "data set cifar10 not found" in " ".join(out.stderr.split())
        assert "Model 1" not in out.stdout
        asked: list[tuple[str, str]] = []
        networks: list[str] = []
        monkeypatch.setattr("reproduction.workshop.files_of", lambda name, split: asked.append((name, split)))
        monkeypatch.setattr("reproduction.workshop.check_name", networks.append)
        shop, text = Workshop(SCALES["full"], tmp_path), exhibit("table-19")
        shop.check(text.data, text.models(shop))
        assert asked == [("bbc", "train"), ("bbc", "test"), ("emotion", "test")]
        assert networks == ["hf:google/bert_uncased_L-4_H-512_A-8"]

    def test_the_time_to_go_follows_from_what_was_trained_of_the_same_kind(
        self, tmp_path, monkeypatch, caplog
    ):
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
        lines = zip(caplog.messages, (0, 0, 1, 1), strict=True)
        ends = [line.partition(f"seed {seed}")[2] for line, seed in lines]
        # Nothing is known; 1 min for each of three and 2 to follow; 1 + 5 + 2; 5 + 2.
        assert ends == ["", *(f", about {minutes} min to go" for minutes in (5, 8, 7))]

    def test_unknown_data(self, tmp_path):
        with pytest.raises(RandomSetError, match="this scale has no such data; got cifar100 at tiny"):
            Workshop(SCALES["tiny"], tmp_path).config("cifar100")

    def test_a_file_of_something_else(self, tmp_path):
        (tmp_path / "result.json").write_text(json.dumps({"format": "other"}))
        with pytest.raises(FileFormatError, match="result of the paper's cannot be read"):
            Outcome.load(tmp_path / "result.json")


class TestWords:
    def test_numbers(self):
        assert over_seeds([0.5, None]) == "50.00"
        assert over_seeds([]) == "–"
        assert beside("1.0", 2.0, 1) == "1.0 (2.0)"
        assert lead({"rsnn": [0.5], "softmax": [0.6], "fsvi": [0.4]}) == "-10.00 to CNN"

    def test_a_page_names_what_is_missing(self):
        outcome = Outcome("figure-4", "tiny", 1, 0, 1, 0, exhibit("figure-4").measure(None))  # type: ignore[arg-type]
        page = page_of(exhibits(), {"figure-4": outcome}, {})
        assert "| c1 | 0.50 | 0.70 | 0.90 |" in page
        assert "no results of table-1, " in page


class TestFull:
    """The paper's own configuration; its first step is taken where torchvision is (tests/vision)."""

    @pytest.mark.parametrize("data", ["mnist", "cifar10", "intel", "cifar100", "imagenet", "imagenet-vit"])
    def test_configurations_are_the_papers(self, tmp_path, data):
        shop = Workshop(SCALES["full"], tmp_path)
        config = shop.config(data)
        recipe = config.plan()
        assert (recipe.epochs, recipe.batch_size, recipe.optimizer) == (200, 128, "adam")
        assert (recipe.learning_rate, recipe.milestones) == (1e-3, (80, 120, 160, 180))
        assert (config.alpha, config.beta, config.size, config.reducer) == (1e-3, 1e-3, 224, "tsne")
        assert config.num_sets == {"cifar100": 200, "imagenet": 3000, "imagenet-vit": 3000}.get(data, 20)
        assert len(shop.seeds) == 5

    def test_the_largest_data_are_in_the_tables_that_have_them(self, tmp_path):
        shop = Workshop(SCALES["full"], tmp_path)
        for id, sources in {
            "table-1": {"mnist", "cifar10", "intel", "cifar100", "imagenet"},
            "table-2": {"cifar10", "mnist", "imagenet"},
            "table-3": {"cifar10", "mnist", "imagenet"},
            "table-7": {"imagenet"},
        }.items():
            assert {config.source for config in exhibit(id).models(shop)} == sources
        backbones = {id: exhibit(id).models(shop)[-1].backbone for id in ("table-2", "table-7")}
        assert backbones == {"table-2": "torchvision:resnet50", "table-7": "timm:vit_base_patch16_224"}

    def test_texts(self, tmp_path):
        config = Workshop(SCALES["full"], tmp_path).config("text")
        recipe = config.plan()
        assert (recipe.learning_rate, recipe.batch_size, recipe.epochs) == (3e-5, 32, 10)
