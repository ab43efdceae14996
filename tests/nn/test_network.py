"""The network: any backbone, prediction over anything that gives batches, files."""

import json
import pickle
from collections import namedtuple
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from randomset import Budget, RandomSet, RandomSetLoss, RandomSetNetwork
from randomset.errors import FileFormatError, RandomSetError, ShapeError
from randomset.nn import BeliefTemperature, PignisticTemperature, Standardise, backbones

BUDGET = Budget.from_sets([{"cat", "dog"}, {"dog", "car"}], ["cat", "dog", "car"])


def network(**options):
    torch.manual_seed(0)
    return RandomSetNetwork(backbones.mlp(4, (8,), dropout=0.5), BUDGET, **options)


X = torch.randn(10, 4, generator=torch.Generator().manual_seed(1))


class TestForward:
    def test_logits_are_the_head_of_the_features(self):
        model = network(hidden=(6,)).eval()
        assert model(X).shape == (10, 5)
        assert torch.equal(model(X), model.head(model.features(X)))
        assert torch.equal(model.features(X), model.backbone(X))

    def test_maps_are_averaged_over_space_and_tokens_over_their_sequence(self):
        maps = RandomSetNetwork(nn.Conv2d(1, 6, 3), BUDGET)
        x = torch.randn(2, 1, 8, 8)
        assert torch.allclose(maps.features(x), maps.backbone(x).mean((2, 3)))
        tokens = RandomSetNetwork(nn.Embedding(50, 6), BUDGET, in_features=6)
        ids = torch.randint(50, (2, 7))
        assert torch.allclose(tokens.features(ids), tokens.backbone(ids).mean(1))

    def test_preprocessing_comes_first(self):
        model = network(preprocess=Standardise(torch.ones(4), torch.full((4,), 2.0))).eval()
        assert torch.allclose(model(X), model.head(model.backbone((X - 1) / 2)))

    def test_inputs_by_name(self):
        class TwoInputs(nn.Module):
            num_features = 4

            def forward(self, left, right):
                return left - right

        model = RandomSetNetwork(TwoInputs(), BUDGET)
        assert torch.equal(model(left=X, right=2 * X), model.head(-X))
        answer = model.predict({"left": X, "right": 2 * X, "labels": torch.zeros(10)})
        assert torch.equal(answer.mass, model.random_set(model.head(-X)).mass)

    @pytest.mark.parametrize(
        "backbone",
        [
            nn.Linear(4, 6),
            nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.1)),
            nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.GELU())),
            nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6)),
        ],
        ids=lambda b: type(b[-1]).__name__ if isinstance(b, nn.Sequential) else "Linear",
    )
    def test_finds_the_width_of_its_backbone(self, backbone):
        assert RandomSetNetwork(backbone, BUDGET)(X).shape == (10, 5)

    def test_asks_for_a_width_that_it_cannot_find(self):
        flattened = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten())
        with pytest.raises(RandomSetError, match="in_features"):
            RandomSetNetwork(flattened, BUDGET)
        assert RandomSetNetwork(flattened, BUDGET, in_features=72)(torch.zeros(1, 1, 8, 8)).shape == (1, 5)
        with pytest.raises(ShapeError, match=r"\(1, 72\).*70"):
            RandomSetNetwork(flattened, BUDGET, in_features=70)(torch.zeros(1, 1, 8, 8))

    def test_a_backbone_that_is_none(self):
        with pytest.raises(RandomSetError, match="no torch module"):
            RandomSetNetwork("resnet", BUDGET)
        with pytest.raises(RandomSetError, match="yields no features"):
            RandomSetNetwork(_Wrapped(lambda x: {"a": x}), BUDGET, in_features=4)(X)


class _Wrapped(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class TestFreezing:
    def test_the_head_alone_is_trained(self):
        model = RandomSetNetwork(
            nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU()), BUDGET, freeze_backbone=True
        )
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 1.0)
        model.train()
        RandomSetLoss(BUDGET)(model(X), torch.arange(10) % 3).backward()
        optimiser.step()
        changed = {n for n, t in model.state_dict().items() if not torch.equal(t, before[n])}
        assert changed == {"head.layers.0.weight", "head.layers.0.bias"}  # no running statistics either

    def test_and_thawed_again(self):
        model = network(freeze_backbone=True).freeze_backbone(False)
        assert all(p.requires_grad for p in model.parameters())
        assert model.train().backbone.training

    def test_a_part_that_the_user_froze_stays_frozen(self):
        backbone = backbones.mlp(4, (8, 8))
        backbone.layers[1].requires_grad_(False)
        model = RandomSetNetwork(backbone, BUDGET)
        assert not model.backbone.layers[1].weight.requires_grad


class _Stream(IterableDataset):
    def __iter__(self):
        yield from X


class TestPredict:
    @pytest.fixture
    def model(self):
        return network().eval()

    @pytest.mark.parametrize(
        "inputs",
        [
            X,
            X.numpy(),
            X.numpy().astype(np.float64),
            TensorDataset(X),
            TensorDataset(X, torch.zeros(10)),
            DataLoader(TensorDataset(X, torch.zeros(10)), batch_size=4),
            DataLoader(_Stream(), batch_size=3),
            [X[:7], X[7:]],
            [(X[:7], None), (X[7:], None)],
            (part for part in X.split(4)),
        ],
        ids=lambda i: type(i).__name__,
    )
    def test_anything_that_gives_batches(self, model, inputs):
        expected = RandomSet.from_logits(model(X), BUDGET)
        answer = model.predict(inputs, batch_size=4)
        assert len(answer) == 10
        assert torch.allclose(answer.mass, expected.mass, atol=1e-6)

    def test_evaluation_mode_without_gradient_and_back(self, model):
        model.train()
        first, second = model.predict(X), model.predict(X)
        assert torch.equal(first.mass, second.mass)  # no dropout
        assert not first.mass.requires_grad
        assert model.training
        assert model.backbone.training

    def test_batches_do_not_matter(self, model):
        whole, parts = model.predict(X), model.predict(X, batch_size=3)
        assert torch.allclose(whole.mass, parts.mass, atol=1e-6)
        assert whole.validity.repaired.tolist() == parts.validity.repaired.tolist()

    def test_repair_is_passed_on(self, model):
        answer = model.predict(X, repair="projection")
        assert torch.allclose(answer.mass, RandomSet.from_logits(model(X), BUDGET, "projection").mass)

    @pytest.mark.parametrize("inputs", [X[:0], np.zeros((0, 4)), [], 3, torch.tensor(1.0)])
    def test_nothing_to_predict(self, model, inputs):
        with pytest.raises(ShapeError):
            model.predict(inputs)

    def test_bytes_go_through_the_preprocessing(self):
        model = RandomSetNetwork(
            backbones.small_cnn(3, 8), BUDGET, preprocess=Standardise([0.5] * 3, [0.25] * 3)
        )
        pixels = torch.randint(256, (4, 3, 8, 8), dtype=torch.uint8)
        expected = model.predict(pixels.float() / 255)
        assert torch.allclose(model.predict(pixels).mass, expected.mass, atol=1e-6)

    def test_double(self, model):
        assert model.double().predict(X).mass.dtype == torch.float64

    def test_progress_is_shown_for_several_batches(self, model, monkeypatch):
        asked = []

        @contextmanager
        def bar(description, total, shown):
            asked.append((description, total, shown))
            yield lambda amount: asked.append(amount)

        monkeypatch.setattr("randomset.nn.network.progress_bar", bar)
        model.predict(X, batch_size=5)
        model.predict(X)
        assert asked == [("predicting", 2, None), 1, 1, ("predicting", 1, False), 1]

    def test_the_budgets_of_thousands(self):
        sets = [{i, i + 1, i + 2} for i in range(0, 900)]
        model = RandomSetNetwork(nn.Linear(4, 8), Budget.from_sets(sets, 1000))
        assert model.predict(X).pignistic.sum(1).tolist() == pytest.approx([1.0] * 10, abs=1e-4)


class TestAsLogits:
    def test_softmax_gives_the_pignistic_probability(self):
        model = network().eval()
        logits = model.as_logits()(X)
        assert torch.allclose(logits.softmax(1), model.predict(X).pignistic, atol=1e-6)
        model.calibration = BeliefTemperature(3.0)
        assert torch.allclose(model.as_logits()(X).softmax(1), model.predict(X).pignistic, atol=1e-6)
        plain = model.as_logits(calibrated=False)(X).softmax(1)
        assert torch.allclose(plain, model.predict(X, calibrated=False).pignistic, atol=1e-6)

    def test_can_be_trained_by_cross_entropy(self):
        model = network()
        nn.functional.cross_entropy(model.as_logits()(X), torch.arange(10) % 3).backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


# -- whole classifiers ----------------------------------------------------------------------------


class Residual(nn.Module):
    """Like torchvision's ResNet: `fc` at the end, and as many classes as a layer inside has channels."""

    def __init__(self, classes=16):
        super().__init__()
        self.conv, self.more = nn.Conv2d(1, 16, 3), nn.Conv2d(16, 16, 3)
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        return self.fc(self.more(self.conv(x)).mean((2, 3)))


class Transformer(nn.Module):
    """Like torchvision's ViT: attention and MLPs inside, `heads.head` at the end."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, 8, 4, 4)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.heads = nn.Sequential()
        self.heads.add_module("head", nn.Linear(8, 5))

    def forward(self, x):
        return self.heads(self.encoder(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


class Pretrained(nn.Module):
    """Like Hugging Face's sequence classifiers: a head of two layers, and an object that holds the logits."""

    def __init__(self):
        super().__init__()
        self.embeddings = nn.Embedding(20, 8)
        self.classifier = nn.ModuleDict({"dense": nn.Linear(8, 8), "out_proj": nn.Linear(8, 2)})

    def forward(self, input_ids, attention_mask=None):
        pooled = self.classifier["dense"](self.embeddings(input_ids).mean(1))
        return SimpleNamespace(loss=None, logits=self.classifier["out_proj"](pooled))


class LastToken(Pretrained):
    """Like GPT-2's classifier: every token is classified, the last one counts."""

    def forward(self, input_ids, attention_mask=None):
        each = self.classifier["out_proj"](self.classifier["dense"](self.embeddings(input_ids)))
        return SimpleNamespace(logits=each[:, -1])


class Auxiliary(Residual):
    """Like Inception: in training, a tuple with a second prediction from inside."""

    Outputs = namedtuple("Outputs", ["logits", "aux"])

    def __init__(self):
        super().__init__(classes=7)
        self.aux = nn.Sequential(nn.Flatten(), nn.Linear(16 * 36, 7))

    def forward(self, x):
        inside = self.conv(x)
        logits = self.fc(self.more(inside).mean((2, 3)))
        return self.Outputs(logits, self.aux(inside)) if self.training else logits


class Told(nn.Module):
    """Like timm: two heads of the same shape, and a method that tells which one counts."""

    def __init__(self):
        super().__init__()
        self.head, self.head_dist = nn.Linear(4, 3), nn.Linear(4, 3)

    def get_classifier(self):
        return self.head

    def forward(self, x):
        return self.head(x)


class TwoHeads(Told):
    get_classifier = None


IMAGES = torch.randn(2, 1, 8, 8)
IDS = torch.randint(20, (2, 5))
CLASSIFIERS = {
    "plain": (lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), X, "2"),
    "square": (lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), X, "2"),
    "with softmax": (lambda: nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3), nn.Softmax(-1)), X, "1"),
    "nested": (lambda: nn.Sequential(nn.Linear(4, 6), nn.Sequential(nn.ReLU(), nn.Linear(6, 3))), X, "1.1"),
    "residual": (Residual, IMAGES, "fc"),
    "transformer": (Transformer, IMAGES, "heads.head"),
    "pretrained": (Pretrained, IDS, "classifier.out_proj"),
    "last token": (LastToken, IDS, "classifier.out_proj"),
    "auxiliary": (Auxiliary, IMAGES, "fc"),
    "told": (Told, X, "head"),
}


@pytest.mark.parametrize("case", CLASSIFIERS)
class TestFromClassifier:
    def test_the_last_layer_makes_way(self, case):
        make, x, layer = CLASSIFIERS[case]
        classifier = make()
        before = {name: tensor.clone() for name, tensor in classifier.state_dict().items()}
        model = RandomSetNetwork.from_classifier(classifier, BUDGET)
        assert model.replaced_layer == layer
        assert model(x).shape == (len(x), 5)
        assert torch.equal(model.eval()(x), model.head(model.features(x)))
        after = classifier.state_dict()
        assert before.keys() == after.keys()  # the classifier itself is left alone
        assert all(torch.equal(before[name], after[name]) for name in before)

    def test_features_are_what_reached_the_layer(self, case):
        make, x, layer = CLASSIFIERS[case]
        classifier = make().eval()
        model = RandomSetNetwork.from_classifier(classifier, BUDGET).eval()
        caught = []
        classifier.get_submodule(layer).register_forward_pre_hook(lambda _, args: caught.append(args[0]))
        classifier(x)
        given = caught[0] if caught[0].dim() == 2 else caught[0][:, -1]
        assert torch.allclose(model.features(x), given)

    def test_is_saved_and_loaded_with_such_a_classifier(self, case, tmp_path):
        make, x, _ = CLASSIFIERS[case]
        model = RandomSetNetwork.from_classifier(make(), BUDGET).eval()
        with pytest.raises(RandomSetError, match="backbone="):
            RandomSetNetwork.load(model.save(tmp_path))
        again = RandomSetNetwork.load(tmp_path, backbone=make())
        assert torch.equal(again(x), model(x))


class TestUnclearClassifiers:
    def test_several_layers_fit(self):
        with pytest.raises(RandomSetError, match=r"head \(4 → 3\), head_dist \(4 → 3\).*layer='head'"):
            RandomSetNetwork.from_classifier(TwoHeads(), BUDGET)
        assert RandomSetNetwork.from_classifier(TwoHeads(), BUDGET, layer="head")(X).shape == (10, 5)

    def test_inside_a_row_of_layers(self):
        model = nn.Sequential(nn.Identity(), nn.Sequential(TwoHeads()))
        with pytest.raises(RandomSetError, match=r"1\.0\.head \(4 → 3\).*layer='1\.0\.head'"):
            RandomSetNetwork.from_classifier(model, BUDGET)
        assert RandomSetNetwork.from_classifier(model, BUDGET, layer="1.0.head")(X).shape == (10, 5)

        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.coarse, self.fine = nn.Linear(4, 7), nn.Linear(4, 3)

            def forward(self, x):
                return self.fine(x)

        network = RandomSetNetwork.from_classifier(nn.Sequential(nn.Identity(), Two()), BUDGET)
        assert network.replaced_layer == "1.fine"  # the one with as many outputs as there are classes

    def test_no_layer_fits(self):
        with pytest.raises(RandomSetError, match=r"no linear layer.*Sequential with 0 \(Conv2d\)"):
            RandomSetNetwork.from_classifier(nn.Sequential(nn.Conv2d(1, 3, 3)), BUDGET)

    def test_a_layer_that_is_not_there(self):
        with pytest.raises(RandomSetError, match=r"got fc; expected one of 0 \(4 → 3\)"):
            RandomSetNetwork.from_classifier(nn.Sequential(nn.Linear(4, 3)), BUDGET, layer="fc")

    def test_a_backbone_without_classifier(self):
        model = Told()
        model.head = nn.Identity()
        with pytest.raises(RandomSetError, match="as it is"):
            RandomSetNetwork.from_classifier(model, BUDGET)

    def test_a_softmax_inside_forward_is_noticed(self):
        class Normalised(Told):
            def forward(self, x):
                return self.head(x).log_softmax(1)

        model = RandomSetNetwork.from_classifier(Normalised(), BUDGET)
        with pytest.raises(RandomSetError, match="softmax"):
            model(X)

    def test_not_a_module(self):
        with pytest.raises(RandomSetError, match="no torch module"):
            RandomSetNetwork.from_classifier("resnet18", BUDGET)


# -- files ----------------------------------------------------------------------------------------


class TestFiles:
    def full(self):
        model = network(hidden=(6,), dropout=0.1, preprocess=Standardise.from_data(X), freeze_backbone=True)
        model.calibration = BeliefTemperature([2.0, 3.0])
        model.notes = {"trained on": "nothing", "numbers": [1, 2]}
        return model.eval()

    def test_everything_comes_back(self, tmp_path):
        model = self.full()
        assert model.save(tmp_path / "new" / "run") == tmp_path / "new" / "run"
        again = RandomSetNetwork.load(tmp_path / "new" / "run")
        assert torch.equal(again.predict(X).mass, model.predict(X).mass)
        assert again.budget == model.budget
        assert again.notes == model.notes
        assert again.backbone_frozen
        assert not again.training
        assert isinstance(again.calibration, BeliefTemperature)
        assert Budget.load(tmp_path / "new" / "run" / "budget.json") == BUDGET

    def test_versions_are_noted(self, tmp_path):
        from safetensors import safe_open

        with safe_open(str(self.full().save(tmp_path) / "model.safetensors"), "pt") as file:
            header = json.loads(file.metadata()["network"])
        assert header["versions"]["torch"] == torch.__version__
        assert header["budget"]["classes"] == ["cat", "dog", "car"]

    @pytest.mark.parametrize("name", ["small_cnn", "resnet", "wide_resnet"])
    def test_our_backbones_need_no_help(self, name, tmp_path):
        options = {
            "small_cnn": {"image_size": 8},
            "resnet": {"width": 4},
            "wide_resnet": {"depth": 10, "widen": 1},
        }
        backbone = backbones.build(name, in_channels=1, **options[name])
        model = RandomSetNetwork(backbone, BUDGET).eval()
        assert torch.equal(RandomSetNetwork.load(model.save(tmp_path))(IMAGES), model(IMAGES))

    def test_foreign_parts_are_asked_for(self, tmp_path):
        model = RandomSetNetwork(nn.Linear(4, 8), BUDGET, preprocess=nn.BatchNorm1d(4)).eval()
        model.save(tmp_path)
        with pytest.raises(RandomSetError, match="preprocess="):
            RandomSetNetwork.load(tmp_path, backbone=nn.Linear(4, 8))
        with pytest.raises(RandomSetError, match=r"Linear.*backbone="):
            RandomSetNetwork.load(tmp_path, preprocess=nn.BatchNorm1d(4))
        again = RandomSetNetwork.load(tmp_path, nn.Linear(4, 8), nn.BatchNorm1d(4))
        assert torch.equal(again(X), model(X))
        with pytest.raises(FileFormatError, match=r"do not fit.*architecture"):
            RandomSetNetwork.load(tmp_path, nn.Linear(5, 8), nn.BatchNorm1d(4))

    def test_shared_weights(self, tmp_path):
        layer = nn.Linear(4, 4)
        model = RandomSetNetwork(nn.Sequential(layer, nn.ReLU(), layer), BUDGET)
        model.save(tmp_path)
        again = RandomSetNetwork.load(tmp_path, nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)))
        assert torch.equal(again(X), model(X))

    def test_a_failed_write_leaves_the_old_file(self, tmp_path, monkeypatch):
        self.full().save(tmp_path)
        before = (tmp_path / "model.safetensors").read_bytes()

        def broken(*arguments, **options):
            raise OSError("no space left on device")

        monkeypatch.setattr("safetensors.torch.save_file", broken)
        with pytest.raises(OSError, match="no space"):
            network().save(tmp_path)
        assert (tmp_path / "model.safetensors").read_bytes() == before
        assert sorted(p.name for p in tmp_path.iterdir()) == ["budget.json", "model.safetensors"]

    def test_what_cannot_be_read(self, tmp_path):
        with pytest.raises(FileFormatError, match="no network here"):
            RandomSetNetwork.load(tmp_path)
        path = tmp_path / "model.safetensors"
        self.full().save(tmp_path)
        whole = path.read_bytes()
        for size in (0, 7, 100, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:size])
            with pytest.raises(FileFormatError, match="not whole"):
                RandomSetNetwork.load(tmp_path)
        save_file({"a": torch.zeros(1)}, path)
        with pytest.raises(FileFormatError, match="holds no random-set network"):
            RandomSetNetwork.load(tmp_path)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"version": 2}, "newer version of randomset"),
            ({"format": "x"}, "no random-set network"),
            ({"head": None}, "not whole"),
            ({"head": {"in_features": "8", "hidden": [], "dropout": 0}}, "not that of its weights"),
            ({"backbone": {"name": "vgg", "options": {}}}, "unknown backbone"),
            ({"backbone": {"name": "mlp", "options": {"code": "import os"}}}, "cannot be built"),
            ({"backbone": {"name": "mlp", "options": {"in_features": 5, "widths": [8]}}}, "do not fit"),
            (
                {"calibration": {"kind": "os.system", "temperature": [1]}},
                "calibration in the file is unknown",
            ),
            ({"calibration": {"kind": "BeliefTemperature", "temperature": [-1]}}, "calibration"),
            ({"budget": {"classes": []}}, "budget"),
            ({"notes": 3}, "not whole"),
        ],
    )
    def test_a_header_that_lies(self, tmp_path, change, message):
        from safetensors import safe_open

        path = self.full().save(tmp_path) / "model.safetensors"
        with safe_open(str(path), "pt") as file:
            header = json.loads(file.metadata()["network"])
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        save_file(state, path, {"network": json.dumps({**header, **change})})
        with pytest.raises(RandomSetError, match=message):
            RandomSetNetwork.load(tmp_path)

    def test_pickling_and_copies(self):
        model = self.full()
        again = pickle.loads(pickle.dumps(model))
        assert torch.equal(again.predict(X).mass, model.predict(X).mass)


class TestCalibrations:
    def test_one_temperature_for_each_cardinality(self):
        model = network().eval()
        logits = model(X)
        divided = logits.clone()
        divided[:, :3] /= 2
        divided[:, 3:] /= 3
        found = BeliefTemperature([2.0, 3.0]).random_set(logits, model.operators)
        assert torch.allclose(found.mass, RandomSet.from_logits(divided, BUDGET).mass)
        assert torch.equal(
            BeliefTemperature([2.0, 3.0, 9.0]).random_set(logits, model.operators).mass, found.mass
        )

    def test_a_probability_has_one_temperature(self):
        with pytest.raises(
            RandomSetError, match=r"one temperature; got \[1\.0, 2\.0, 3\.0\].*BeliefTemperature"
        ):
            PignisticTemperature([1, 2, 3])

    @pytest.mark.parametrize("temperature", [0.3, 1.0, 1.5, 8.0])
    def test_the_order_of_the_classes_is_kept(self, temperature):
        torch.manual_seed(0)
        logits = 3 * torch.randn(500, len(BUDGET), dtype=torch.float64)
        before = RandomSet.from_logits(logits, BUDGET)
        after = PignisticTemperature(temperature).random_set(logits, BUDGET.operators_on(logits.device))
        assert torch.equal(before.labels, after.labels)
        assert (after.mass >= 0).all()
        assert after.mass.sum(1).tolist() == pytest.approx([1.0] * 500)
        expected = (before.pignistic.clamp_min(1e-300).log() / temperature).softmax(1)
        top = expected.gather(1, before.labels[:, None])[:, 0]
        assert after.confidence.tolist() == pytest.approx(top.tolist(), abs=1e-6)
        order = before.pignistic.argsort(1)
        assert (after.pignistic.gather(1, order).diff(dim=1) >= -1e-9).all()

    def test_a_calibration_is_used_unless_told_otherwise(self):
        model = network().eval()
        plain = model.predict(X)
        model.calibration = BeliefTemperature(4.0)
        assert torch.equal(model.predict(X, calibrated=False).mass, plain.mass)
        assert not torch.equal(model.predict(X).mass, plain.mass)

    @pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), []])
    def test_bad_temperatures(self, temperature):
        with pytest.raises(RandomSetError, match="temperature"):
            BeliefTemperature(temperature)


class TestStandardise:
    def test_images_and_tables(self):
        images = torch.randn(50, 3, 5, 5) * 4 + 1
        standard = Standardise.from_data(images)(images)
        assert standard.mean((0, 2, 3)).tolist() == pytest.approx([0] * 3, abs=1e-5)
        assert standard.std((0, 2, 3), correction=0).tolist() == pytest.approx([1] * 3, abs=1e-5)

    def test_a_constant_feature_keeps_its_scale(self):
        table = torch.tensor([[1.0, 0.1], [2.0, 0.1], [4.0, 0.1]])
        assert Standardise.from_data(table).std[1] == 1

    def test_mistakes(self):
        with pytest.raises(RandomSetError, match="positive"):
            Standardise([0.0], [0.0])
        with pytest.raises(ShapeError, match=r"\(2, 4\).*\(batch, 3, …\)"):
            Standardise(torch.zeros(3), torch.ones(3))(torch.zeros(2, 4))
