"""evaluate(): every kind of data and model, one pass over each, what is wrong is said, nothing is lost."""

import json

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, SubsetRandomSampler, TensorDataset

from randomset import Budget, RandomSetNetwork
from randomset.baselines import Softmax
from randomset.belief.decision import interval_dominance
from randomset.data import Source, load_source
from randomset.errors import InvalidBeliefError, LabelError, RandomSetError, ShapeError
from randomset.evaluation import Evaluation, Prediction, Threshold, as_predictor, evaluate
from randomset.evaluation.accuracy import brier_score, negative_log_likelihood
from randomset.evaluation.calibration import calibration_error
from randomset.evaluation.conformal import Conformal
from randomset.evaluation.feeding import digests_of
from randomset.evaluation.ood import detection, rank_average
from randomset.nn import backbones
from randomset.nn.preprocessing import Standardise
from randomset.training.rival_storage import load_model, save_rival


def points(samples=120, shift=0.0, seed=0):
    """Three clouds in the plane, and their classes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(samples) % 3
    centres = torch.tensor([[0.0, 3.0], [3.0, -2.0], [-3.0, -2.0]])
    return centres[labels] + torch.randn(samples, 2, generator=generator) + shift, labels


def model(inputs):
    """Softmax of the distances to the centres."""
    centres = torch.tensor([[0.0, 3.0], [3.0, -2.0], [-3.0, -2.0]])
    return (-(torch.cdist(inputs.float(), centres) ** 2) / 2).softmax(1)


def network(classes="abc", seed=0):
    """A random-set network that has learned nothing."""
    torch.manual_seed(seed)
    budget = Budget.from_sets([set(classes[:2])], list(classes))
    found = RandomSetNetwork(backbones.mlp(2, (8,)), budget)
    nn.init.normal_(found.head.layers[-1].weight, std=2.0)
    return found.eval()


def image_network(channels=1, size=8):
    torch.manual_seed(0)
    backbone, budget = backbones.small_cnn(channels, size, width=16), Budget.from_sets([{0, 1}], 10)
    found = RandomSetNetwork(backbone, budget, preprocess=Standardise(0.3, 0.4))
    nn.init.normal_(found.head.layers[-1].weight, std=2.0)
    return found.eval()


def assert_alike(found, expected):
    """Numbers that differ by the rounding of other batches."""
    assert found["samples"] == expected["samples"]
    for name in ("accuracy", "nll", "brier", "ece", "confidence"):
        assert found[name] == pytest.approx(expected[name], rel=1e-4), name


TEST, UNKNOWN = points(), torch.randn(50, 2, generator=torch.Generator().manual_seed(9)) * 3


class TestNumbers:
    """What evaluate reports is what the functions give on the model's outputs."""

    def test_of_a_function(self):
        result = evaluate(
            model, TEST, {"noise": UNKNOWN}, validation=points(seed=1), calibration=points(seed=2)
        )
        p, labels = model(TEST[0]), TEST[1]
        test = result["test"]
        assert test["samples"] == 120
        assert test["accuracy"] == pytest.approx((p.argmax(1) == labels).double().mean().item())
        assert test["nll"] == pytest.approx(negative_log_likelihood(p, labels))
        assert test["brier"] == pytest.approx(brier_score(p, labels))
        assert test["ece"] == pytest.approx(calibration_error(p, labels))
        assert sum(test["reliability"]["count"]) == 120
        known, unknown = Prediction(p), Prediction(model(UNKNOWN))
        for score in ("entropy", "1 - maximum"):
            expected = detection(known.scores[score], unknown.scores[score])
            found = result["ood"]["noise"]["scores"][score]
            assert (found["auroc"], found["fpr95"]) == (expected.auroc, expected.fpr95)
            assert found["unknown"]["mean"] == pytest.approx(unknown.scores[score].mean().item())
        held = Prediction(model(points(seed=1)[0]))
        ranked = [rank_average(held.scores, one.scores) for one in (known, unknown)]
        expected = detection(*ranked).auroc
        assert result["ood"]["noise"]["scores"]["rank average"]["auroc"] == pytest.approx(expected)

    def test_the_threshold_keeps_its_share_of_validation_data(self):
        held = points(200, seed=1)
        result = evaluate(model, TEST, {"noise": UNKNOWN}, validation=held, keep=0.8)
        threshold = Threshold.keeping(0.8, Prediction(model(held[0])).scores["entropy"], "entropy")
        found = result["threshold"]
        assert (found["value"], found["share"], found["validation_samples"]) == (threshold.value, 0.8, 200)
        kept = Prediction(model(TEST[0])).scores["entropy"] <= threshold.value
        stopped = Prediction(model(UNKNOWN)).scores["entropy"] > threshold.value
        assert found["kept"] == pytest.approx(kept.double().mean().item())
        assert found["detected"]["noise"] == pytest.approx(stopped.double().mean().item())
        right = model(TEST[0])[kept].argmax(1) == TEST[1][kept]
        assert found["accuracy_of_kept"] == pytest.approx(right.double().mean().item())
        other = Threshold("1 - maximum", 0.1, 0.5)
        assert evaluate(model, TEST, threshold=other)["threshold"]["score"] == "1 - maximum"

    def test_conformal_sets(self):
        calibration = points(300, seed=2)
        result = evaluate(model, TEST, calibration=calibration, alpha=0.2, seed=5)
        rows = result["conformal"]["rows"]
        assert [(row["score"], row["by_class"]) for row in rows] == [
            (score, by) for score in ("1 - BetP", "APS", "RAPS") for by in (False, True)
        ]
        conformal = Conformal(Prediction(model(calibration[0])), calibration[1], "1 - BetP", seed=5)
        expected = Conformal.measure(conformal.sets(Prediction(model(TEST[0])), 0.2), TEST[1])
        assert rows[0]["coverage"] == pytest.approx(expected.coverage)
        assert rows[0]["class_size"] == pytest.approx(expected.size_by_class.tolist())
        assert result["conformal"]["samples"] == 300

    def test_a_random_set_network_has_bounds(self):
        found = network()
        result = evaluate(found, TEST, {"noise": UNKNOWN}, validation=points(seed=1))
        answer = found.predict(TEST[0])
        scores = result["test"]["scores"]
        assert scores["credal width"]["mean"] == pytest.approx(answer.credal_width.mean().item(), rel=1e-5)
        names = [row["score"] for row in result["conformal"]["rows"]]
        assert names[:4] == ["1 - Pl"] * 2 + ["1 - Bel"] * 2
        size = interval_dominance(answer.mass, answer.budget).sum(1).double().mean().item()
        assert result["decisions"]["interval dominance"]["size"] == pytest.approx(size)
        assert result.classes == ("a", "b", "c")


class Stream(IterableDataset):
    def __iter__(self):
        yield from zip(*TEST, strict=True)


class Points(Dataset):
    def __len__(self):
        return len(TEST[0])

    def __getitem__(self, place):
        return TEST[0][place], int(TEST[1][place])


KINDS = {
    "tensors": lambda: TEST,
    "arrays": lambda: (TEST[0].numpy(), TEST[1].numpy()),
    "tensor data set": lambda: TensorDataset(*TEST),
    "data set": Points,
    "stream": Stream,
    "loader of a stream": lambda: DataLoader(Stream(), batch_size=7),
    "loader": lambda: DataLoader(TensorDataset(*TEST), batch_size=50),
    "batches": lambda: list(zip(TEST[0].split(50), TEST[1].split(50), strict=True)),
    "source": lambda: Source("points", "features", *TEST, ("0", "1", "2")),
}


class TestData:
    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind(self, kind):
        expected = evaluate(model, TEST)
        found = evaluate(model, KINDS[kind](), batch_size=33)
        assert_alike(found["test"], expected["test"])

    @pytest.mark.parametrize(
        "make",
        [
            lambda: model,
            lambda: as_predictor(model),
            lambda: lambda x: model(x).numpy(),
            lambda: lambda x: (model(x).tolist(), {"own": np.arange(len(x)).astype(float)}),
        ],
    )
    def test_every_kind_of_model(self, make):
        result = evaluate(make(), TEST)
        assert result["test"]["accuracy"] == evaluate(model, TEST)["test"]["accuracy"]

    def test_estimators_and_random_sets(self):
        from sklearn.linear_model import LogisticRegression

        fitted = LogisticRegression().fit(TEST[0].numpy(), TEST[1].numpy())
        assert evaluate(fitted, points(seed=3))["test"]["accuracy"] > 0.9
        found = network()
        assert_alike(evaluate(found.predict, TEST)["test"], evaluate(found, TEST)["test"])

    def test_what_was_repaired(self):
        found = network()
        expected = found.predict(TEST[0]).validity.negative.double().mean().item()
        assert evaluate(found, TEST)["test"]["negative_mass"] == pytest.approx(expected)
        assert "negative_mass" not in evaluate(model, TEST)["test"]

    def test_a_module_gives_logits(self):
        layer = nn.Linear(2, 3)
        result = evaluate(layer, TEST)
        right = layer(TEST[0]).argmax(1) == TEST[1]
        assert result["test"]["accuracy"] == pytest.approx(right.double().mean().item())

    def test_names_and_paths(self, tmp_path):
        digits = load_source("digits")
        np.savez(tmp_path / "a.npz", images=digits.inputs[:40].numpy(), labels=digits.labels[:40].numpy())
        found = image_network()
        by_name = evaluate(found, "digits")
        assert by_name["test"]["samples"] == 1797
        path = evaluate(found, tmp_path / "a.npz", {"all": digits.inputs[100:]})
        assert path["test"]["samples"] == 40
        assert path["ood"]["all"]["samples"] == 1697

    def test_classes_are_matched_by_name(self, tmp_path):
        """The file numbers its classes in another order than the network."""
        inputs, labels = TEST
        names = np.array(["c", "a", "b"])
        np.savez(tmp_path / "a.npz", features=inputs.numpy(), labels=names[labels.numpy()])
        found = network()
        result = evaluate(found, tmp_path / "a.npz")
        right = np.array(found.predict(inputs).label_names) == names[labels.numpy()]
        assert result["test"]["accuracy"] == pytest.approx(right.mean())
        np.savez(
            tmp_path / "b.npz", features=inputs.numpy(), labels=np.array(["x", "a", "b"])[labels.numpy()]
        )
        with pytest.raises(LabelError, match="class that is not known; got x"):
            evaluate(found, tmp_path / "b.npz")

    def test_names_hold_for_changed_images_too(self):
        """Noise of no size: the accuracy is that of the test, in whatever order the classes are named."""

        class Named(TensorDataset):
            classes = ("dark", "bright")

        images = torch.cat((torch.full((30, 1, 4, 4), 0.2), torch.full((30, 1, 4, 4), 0.8)))
        images += 0.01 * torch.rand(60, 1, 4, 4, generator=torch.Generator().manual_seed(0))
        labels = torch.arange(60) // 30
        by_brightness = lambda x: torch.stack((x.mean((1, 2, 3)), 1 - x.mean((1, 2, 3))), 1)  # noqa: E731
        result = evaluate(by_brightness, Named(images, labels), classes=("bright", "dark"), noise=(1e-6,))
        assert result["test"]["accuracy"] == 1
        assert [row["accuracy"] for row in result["noise"]] == [1, 1]

    def test_images_are_made_to_fit_and_it_is_said(self):
        digits = load_source("digits")
        colour = torch.randint(0, 256, (30, 3, 32, 32), dtype=torch.uint8)
        result = evaluate(image_network(), digits, {"colour": colour, "same": torch.rand(9, 1, 8, 8)})
        assert result["remarks"] == [
            "colour: colour turned to grey",
            "colour: resized from 32 × 32 to 8 × 8",
            "colour: divided by 255",
        ]
        bytes_only = (digits.inputs * 255).round().to(torch.uint8), digits.labels
        back = evaluate(image_network(), bytes_only, {"floats": torch.rand(9, 1, 8, 8)})
        assert back["remarks"] == ["floats: multiplied by 255"]
        with pytest.raises(ShapeError, match=r"do not fit.*\(5,\).*\(2,\)"):
            evaluate(model, TEST, {"other": torch.zeros(3, 5)})

    def test_hugging_face(self):
        pixels = np.random.default_rng(0).integers(0, 256, (12, 8, 8), dtype=np.uint8)
        names = [str(c) for c in range(10)]
        features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=names)})
        rows = {"image": [Image.fromarray(one) for one in pixels], "label": [k % 10 for k in range(12)]}
        table = datasets.Dataset.from_dict(rows, features)
        result = evaluate(image_network(), table)
        expected = evaluate(image_network(), (torch.from_numpy(pixels)[:, None], torch.arange(12) % 10))
        assert_alike(result["test"], expected["test"])

    def test_texts(self):
        texts = ["good", "bad", "good good", "bad bad"]
        source = Source("words", "text", texts, torch.tensor([0, 1, 0, 1]), ("good", "bad"))
        result = evaluate(
            lambda words: [[0.9, 0.1] if "good" in word else [0.1, 0.9] for word in words],
            source,
            {"others": ["tree", "house"]},
        )
        assert result["test"]["accuracy"] == 1
        assert result["ood"]["others"]["scores"]["entropy"]["auroc"] == 0.5
        with pytest.raises(RandomSetError, match="1 of 2, the first in row 1"):
            evaluate(lambda words: [[1.0, 0.0]] * len(words), source, {"same": ["tree", "bad"]})

    def test_one_pass_over_each_set(self):
        seen = []

        def counting(inputs):
            seen.append(len(inputs))
            return model(inputs)

        evaluate(counting, TEST, {"noise": UNKNOWN}, validation=points(60, seed=3), batch_size=1000)
        assert seen == [120, 50, 60]


class TestNames:
    """Labels mean what their names say, wherever the data come from."""

    def test_of_data_sets_in_python(self):
        class Named(Points):
            classes = ("c", "a", "b")

        names = np.array(Named.classes)[TEST[1].numpy()]
        found = network()
        expected = (np.array(found.predict(TEST[0]).label_names) == names).mean()
        assert evaluate(found, Named())["test"]["accuracy"] == pytest.approx(expected)
        Named.classes = ("x", "y", "z")
        assert evaluate(found, Named())["remarks"] == [
            "test: its classes have other names than the model's, and are taken in their order"
        ]
        Named.classes = ("x", "y")
        with pytest.raises(LabelError, match="other classes than the model; got x, y"):
            evaluate(found, Named())

    def test_of_hugging_face(self):
        features = datasets.Features(
            {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])}
        )
        rows = {"text": ["good", "bad", "good good"], "label": [1, 0, 1]}
        model = as_predictor(lambda words: [[0.9, 0.1] if "good" in w else [0.1, 0.9] for w in words])
        table = datasets.Dataset.from_dict(rows, features)
        assert evaluate(model, table, classes=["pos", "neg"])["test"]["accuracy"] == 1
        words = datasets.Dataset.from_dict({"text": rows["text"], "label": ["pos", "neg", "pos"]})
        assert evaluate(model, words, classes=["pos", "neg"])["test"]["accuracy"] == 1

    def test_as_many_names_as_outputs(self):
        with pytest.raises(RandomSetError, match="3 outputs for 2 names"):
            evaluate(model, TEST, classes=["a", "b"])


class TestScale:
    def test_bytes_beside_floats_of_another_range(self):
        large = torch.rand(20, 1, 8, 8) * 255, torch.arange(20) % 10
        as_bytes = torch.randint(0, 256, (20, 1, 8, 8), dtype=torch.uint8)
        with pytest.raises(ShapeError, match=r"another scale.*from bytes"):
            evaluate(image_network(), large, {"bytes": as_bytes})
        with pytest.raises(ShapeError, match="another scale"):
            evaluate(image_network(), (as_bytes, large[1]), {"floats": large[0]})
        small = large[0] / 255, large[1]
        with pytest.raises(ShapeError, match="another scale"):
            evaluate(image_network(), small, {"floats": large[0] + 1})

    def test_numbers_of_tables_are_left_alone(self):
        table = (10 * points()[0]).to(torch.uint8), points()[1]
        result = evaluate(model, table, {"floats": UNKNOWN})
        assert result["remarks"] == []


class TestRows:
    def test_pictures_of_pillow(self):
        pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 8), dtype=np.uint8)

        class Pictures(Dataset):
            def __len__(self):
                return 6

            def __getitem__(self, place):
                return Image.fromarray(pixels[place]), place

        result = evaluate(image_network(), Pictures())
        expected = evaluate(image_network(), (torch.from_numpy(pixels)[:, None], torch.arange(6)))
        assert_alike(result["test"], expected["test"])

    def test_inputs_by_name(self):
        tokens = {"x": TEST[0], "mask": torch.ones(120)}
        named = as_predictor(lambda batch: model(batch["x"] * batch["mask"][:, None]))
        assert_alike(evaluate(named, (tokens, TEST[1]), batch_size=50)["test"], evaluate(model, TEST)["test"])

    def test_three_tensors(self):
        with pytest.raises(RandomSetError, match="more than inputs and labels"):
            evaluate(model, TensorDataset(TEST[0], TEST[1], TEST[1]))

    def test_a_sampler_counts_what_it_gives(self):
        images = TensorDataset(torch.rand(500, 1, 8, 8), torch.arange(500) % 10)
        loader = DataLoader(images, batch_size=16, sampler=SubsetRandomSampler(range(50)))
        result = evaluate(image_network(), loader, noise=(0.1,), samples=40)
        assert result["changed_samples"] == 40


class TestMistakes:
    def test_a_few_shared_inputs_are_left_out(self):
        mixed = torch.cat((torch.randn(200, 2), TEST[0][:2]))
        result = evaluate(model, TEST, {"mixed": mixed})
        assert result["ood"]["mixed"]["samples"] == 200
        assert result["remarks"] == ["mixed: 2 of 202 are test inputs, and left out"]
        assert result["left_out"] == {"mixed": [200, 201]}

    def test_of_validation_data_as_well(self):
        generator = torch.Generator().manual_seed(3)
        held = torch.cat((TEST[0][:1], torch.randn(150, 2, generator=generator)))
        result = evaluate(model, TEST, validation=(held, torch.arange(151) % 3))
        assert len(result.predictions["validation"]) == 150
        assert "validation: 1 of 151 are test inputs, and left out" in result["remarks"]

    def test_rows_that_repeat_are_no_mistake(self):
        generator = torch.Generator().manual_seed(0)
        rows = torch.randint(0, 2, (300, 2), generator=generator).float()
        labels = torch.arange(300) % 3
        result = evaluate(model, (rows[:150], labels[:150]), validation=(rows[150:], labels[150:]))
        assert len(result.predictions["validation"]) == 150
        (remark,) = (one for one in result["remarks"] if "equal to a test input" in one)
        assert "of 150 are equal to a test input" in remark
        assert result["left_out"] == {}

    def test_a_threshold_on_a_score_that_is_not_there(self):
        with pytest.raises(RandomSetError, match="does not have; got credal width; expected one of entropy"):
            evaluate(model, TEST, threshold=Threshold("credal width", 0.5, 0.95))

    def test_validation_data_that_are_test_data(self):
        with pytest.raises(RandomSetError, match="validation holds inputs of the test data; got 120 of 120"):
            evaluate(model, TEST, validation=TEST)

    def test_unknown_inputs_that_are_test_inputs(self):
        mixed = torch.cat((UNKNOWN[:4], TEST[0][:2]))
        with pytest.raises(RandomSetError, match=r"mixed holds inputs of the test data; got 2 of 6.*row 4"):
            evaluate(model, TEST, {"mixed": mixed})

    def test_bytes_and_floats_are_the_same_pixels(self):
        images = torch.randint(0, 256, (5, 1, 4, 4), dtype=torch.uint8)
        assert torch.equal(digests_of(images), digests_of(images.float() / 255))
        assert (digests_of(torch.full((2, 1, 4, 4), 0.5)) == 0).all()  # empty pictures overlap with nothing

    def test_a_nan_is_located(self):
        inputs = points(100)[0].clone()
        inputs[57] = torch.nan
        with pytest.raises(InvalidBeliefError, match=r"on test; .*input 57 \(batch 1, place 7\)"):
            evaluate(model, (inputs, points(100)[1]), batch_size=50)
        with pytest.raises(InvalidBeliefError, match=r"on test; got nan.*input 57 \(batch 1, place 7\)"):
            evaluate(network(), (inputs, points(100)[1]), batch_size=50)

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: evaluate(3, TEST), "cannot be measured; got int"),
            (lambda: evaluate(model, (TEST[0], TEST[1] + 1)), "outside the classes; got 3 at row 2"),
            (lambda: evaluate(model, (TEST[0], TEST[1][:-1])), "do not match; got 120 and 119"),
            (lambda: evaluate(model, TEST[0]), "test has no labels"),
            (lambda: evaluate(model, (TEST[0], TEST[0])), "no classes; got torch.float32"),
            (lambda: evaluate(model, (TEST[0][:0], TEST[1][:0])), "do not match"),
            (lambda: evaluate(model, []), "no batch of test"),
            (lambda: evaluate(model, 7), "no known kind; got int"),
            (
                lambda: evaluate(model, TEST, score="width"),
                "no such score; got width; expected one of",
            ),
            (lambda: evaluate(model, TEST, {"test": UNKNOWN}), "means something else; got test"),
            (lambda: evaluate(model, TEST, alpha=1.5), "alpha"),
            (lambda: evaluate(model, TEST, batch_size=0), "batch_size"),
            (lambda: evaluate(model, TEST, attacks=(0.1,)), "needs gradients"),
            (lambda: evaluate(model, TEST, noise=(0.1,)), "range of pixels"),
            (lambda: evaluate(model, TEST, validation=points(20), keep=0), "cannot be kept"),
            (lambda: evaluate(nn.Linear(5, 3), TEST), r"cannot take the inputs of test.*\(2,\)"),
            (lambda: evaluate(lambda x: x, TEST), "no probabilities on test"),
            (lambda: evaluate(lambda x: model(x)[:1], TEST), "another number of answers.*1 for 120"),
            (lambda: evaluate(lambda x: (model(x), {"s": x[:, 0] / 0}), TEST), "input 0 .batch 0, place 0"),
            (lambda: evaluate(model, TEST, keep=1.5), "cannot be kept"),
            (lambda: evaluate(model, TEST, [UNKNOWN]), "have no names; got list"),
            (lambda: evaluate(lambda x: 9 * model(x), TEST), "no probabilities on test"),
            (lambda: evaluate(model, "nothing"), "no such data"),
        ],
    )
    def test_what_is_wrong_is_said(self, call, message):
        with pytest.raises(RandomSetError, match=message):
            call()


@pytest.mark.slow
class TestResult:
    @pytest.fixture(scope="class")
    @classmethod
    def result(cls):
        return evaluate(
            image_network(),
            load_source("digits").part(torch.arange(300, 1797)),
            {"noise | strange/name": torch.rand(40, 1, 8, 8)},
            validation=load_source("digits").part(torch.arange(300)),
            noise=(0.3,),
            rotation=((-30, 30),),
            attacks=(0.0, 0.05),
            samples=20,
            timing=True,
        )

    def test_a_folder_in_the_home_folder(self, result, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path))
        assert result.save("~/run")[0] == tmp_path / "run" / "evaluation.json"
        assert Evaluation.load("~/run").numbers.keys() == result.numbers.keys()
        threshold = Threshold("entropy", 0.5, 0.95)
        assert threshold.save("~/run") == tmp_path / "run" / "threshold.json"
        assert Threshold.load("~/run") == threshold
        save_rival(Softmax(backbones.mlp(2, (8,)), 3), "~/rival")
        assert (tmp_path / "rival").is_dir()
        assert isinstance(load_model("~/rival"), Softmax)

    def test_everything_is_kept(self, result, tmp_path):
        written = result.save(tmp_path)
        assert [path.name for path in written] == ["evaluation.json", "evaluation.md", "scores.npz"]
        again = Evaluation.load(tmp_path)
        assert again.numbers == json.loads(json.dumps(result.numbers))
        assert again.to_markdown() == result.to_markdown() == (tmp_path / "evaluation.md").read_text()
        for name, prediction in result.predictions.items():
            other = again.predictions[name]
            assert torch.equal(prediction.probabilities, other.probabilities)
            assert torch.equal(prediction.lower, other.lower)
            assert list(prediction.scores) == list(other.scores)
            for score in prediction.scores:
                assert torch.equal(prediction.scores[score], other.scores[score])
        assert torch.equal(again.labels["test"], result.labels["test"])

    def test_as_a_table_of_inputs(self, result, tmp_path):
        import pandas

        frame = pandas.read_parquet(result.save_scores(tmp_path / "scores.parquet"))
        assert len(frame) == 1497 + 40 + 300
        test = frame[frame["set"] == "test"]
        assert (test["label"] == test["predicted"]).mean() == pytest.approx(result["test"]["accuracy"])
        assert test["entropy"].mean() == pytest.approx(result["test"]["scores"]["entropy"]["mean"], rel=1e-5)
        assert (frame[frame["set"] != "test"]["label"] == -1).sum() == 40
        with pytest.raises(RandomSetError, match=r"\.npz or \.parquet"):
            result.save_scores(tmp_path / "scores.csv")

    def test_tables(self, result):
        titles = [table.title for table in result.tables]
        assert titles == [
            "Test data, 1497 inputs",
            "Telling unknown inputs from known ones",
            "Threshold to deploy",
            "Leaving out the least sure",
            "Decisions for sets of classes",
            "Conformal sets",
            "Noise, 20 test inputs",
            "Rotation, 20 test inputs",
            "Attacks, 20 test inputs",
            "Time of a prediction with its uncertainty",
        ]
        for table in result.tables:
            assert all(len(row) == len(table.columns) for row in table.rows)
        text = result.to_markdown()
        assert f"| accuracy | {100 * result['test']['accuracy']:.2f} % |" in text
        assert "noise \\| strange/name (40)" in text
        assert str(result) == result._repr_markdown_() == text
        assert "1497 test inputs" in repr(result)
        assert result.summary.startswith("On 1497 test inputs: accuracy")

    def test_attacks_of_no_size_change_nothing(self, result):
        clean = next(row["accuracy"] for row in result["attacks"] if row["attack"] == "none")
        rows = [row for row in result["attacks"] if row["epsilon"] == 0 and row["attack"] != "none"]
        assert len(rows) == 7
        assert {row["accuracy"] for row in rows} == {clean}
        worst = {
            row["epsilon"]: row["accuracy"] for row in result["attacks"] if row["attack"] == "all of them"
        }
        each = [row["accuracy"] for row in result["attacks"] if row["epsilon"] == 0.05]
        assert worst[0.05] <= min(each)

    def test_levels(self, result):
        assert [row["level"] for row in result["noise"]] == [None, 0.3]
        assert [row["level"] for row in result["rotation"]] == [None, [-30, 30]]
        assert result["noise"][0] == result["rotation"][0]

    def test_time(self, result):
        timing = result["timing"]
        for name in ("latency_ms", "throughput", "ratio_single", "ratio_batch"):
            assert 0 < timing[name]["low"] <= timing[name]["median"] <= timing[name]["high"]

    def test_json_has_no_nan(self, tmp_path):
        """A class that does not occur has no coverage."""
        inputs, labels = points(30)
        some = labels != 2
        result = evaluate(model, (inputs[some], labels[some]), validation=points(seed=4))
        text = result.to_json(tmp_path / "a.json")
        assert "NaN" not in text
        assert json.loads(text)["conformal"]["rows"][0]["class_coverage"][2] is None

    def test_what_was_not_measured(self, result, tmp_path):
        with pytest.raises(KeyError, match="was not measured"):
            result["speed"]
        assert "noise" in result
        assert "speed" not in result
        with pytest.raises(RandomSetError, match="cannot be read"):
            Evaluation.load(tmp_path)
        (tmp_path / "evaluation.json").write_text("[]")
        with pytest.raises(RandomSetError, match="with format 'list'"):
            Evaluation.load(tmp_path)


class TestThresholdFile:
    def test_round_trip(self, tmp_path):
        assert Threshold.load(tmp_path) is None
        threshold = Threshold("mass on Θ", 0.25, 0.9)
        threshold.save(tmp_path)
        assert Threshold.load(tmp_path) == threshold

    @pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "randomset.threshold", "version": 1}'])
    def test_damaged(self, tmp_path, content):
        (tmp_path / "threshold.json").write_text(content)
        with pytest.raises(RandomSetError, match=r"threshold cannot be read.*threshold\.json"):
            Threshold.load(tmp_path)


@pytest.mark.slow
def test_two_processes_say_what_one_says():
    found, data = network(), TensorDataset(*points(101))
    one = evaluate(found, data)
    two = evaluate(found, data, devices=2, batch_size=16)
    for name, score in one.predictions["test"].scores.items():
        assert torch.allclose(score, two.predictions["test"].scores[name], atol=1e-6), name
    assert torch.equal(one.labels["test"], two.labels["test"])
    assert_alike(two["test"], one["test"])


def test_what_two_processes_cannot_do():
    with pytest.raises(RandomSetError, match="in one process"):
        evaluate(network(), TEST, devices=2, timing=True)
    with pytest.raises(RandomSetError, match="cannot be shared among devices"):
        evaluate(network(), KINDS["batches"](), devices=2)
