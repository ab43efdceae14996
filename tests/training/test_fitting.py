"""`fit`: it learns, logs, takes data of every kind, and reports mistakes."""

import csv
import signal

import pandas
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import randomset as rs
from randomset import backbones
from randomset.errors import LabelError, RandomSetError, RandomSetWarning, ShapeError
from randomset.models import Softmax
from randomset.models import load as load_model
from tests.training.conftest import BUDGET, network, quick


def probabilities_of(model, inputs):
    found = model.predict(inputs)
    return found.pignistic if isinstance(found, rs.RandomSet) else found.probabilities


def columns(report):
    return {name: [row[name] for row in report.history] for name in report.history[0]}


@pytest.mark.slow
class TestLearning:
    def test_digits_are_learned_and_everything_is_logged(self, digits, tmp_path):
        model = network()
        report = quick(model, *digits, epochs=8, learning_rate=1e-2, out=tmp_path)
        assert report.last["val_accuracy"] > 0.9
        assert report.last["loss"] < 0.5 * report.history[0]["loss"]
        with (tmp_path / "metrics.csv").open() as file:
            rows = list(csv.DictReader(file))
        names = ["epoch", "step", "loss", "bce", "M_r", "M_s", "val_loss", "val_invalid", "val_negative_mass"]
        names += ["val_accuracy", "val_nll", "val_ece", "learning_rate", "samples_per_second"]
        assert list(rows[0]) == names
        assert [float(row["loss"]) for row in rows] == pytest.approx(columns(report)["loss"])
        for row in report.history:
            parts = row["bce"] + 1e-3 * row["M_r"] + 1e-3 * row["M_s"]
            assert row["loss"] == pytest.approx(parts, rel=1e-5)
        assert "validation accuracy" in str(report)
        assert report.to_frame().shape == (8, 14)
        assert rs.RandomSetNetwork.load(tmp_path).budget == BUDGET

    def test_a_trained_classifier_is_not_destroyed(self, digits):
        torch.manual_seed(0)
        hidden = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        plain = nn.Sequential(hidden, nn.Linear(64, 10))
        before = quick(plain, *digits, epochs=8, loss=nn.CrossEntropyLoss()).last["val_accuracy"]
        tuned = rs.RandomSetNetwork.from_classifier(plain, BUDGET)
        after = quick(tuned, *digits, epochs=3).last["val_accuracy"]
        assert after > before - 0.05

    def test_a_seed_repeats_everything(self, digits):
        states = []
        for seed in (1, 1, 2):
            model = network(dropout=0.3)
            quick(model, digits[0], seed=seed)
            states.append(model.head.layers[0].weight.detach())
        assert torch.equal(states[0], states[1])
        assert not torch.equal(states[0], states[2])

    def test_a_frozen_backbone_stays(self, digits):
        model = network().freeze_backbone()
        before = [p.clone() for p in model.backbone.parameters()]
        quick(model, *digits)
        assert all(torch.equal(a, b) for a, b in zip(before, model.backbone.parameters(), strict=True))

    def test_set_valued_labels_and_weights(self, digits):
        x, y = digits[0].tensors
        mask = nn.functional.one_hot(y, 10).bool()
        mask[:, 8] |= mask[:, 3]
        data = TensorDataset(x, mask, torch.rand(len(x)))
        val = TensorDataset(x[:100], mask[:100])
        report = quick(network(), data, val, epochs=2)
        assert 0 <= report.last["val_accuracy"] <= 1
        assert report.calibration is not None


def test_data_frames(digits):
    x, y = digits[0].tensors
    frame, labels = pandas.DataFrame(x.numpy()), pandas.Series(y.numpy())
    expected = quick(network(), (x, y), epochs=1).last["loss"]
    assert quick(network(), (frame, labels), epochs=1).last["loss"] == expected


def test_larger_values_in_a_later_training_are_known():
    images, labels = torch.rand(40, 1, 4, 4), torch.arange(40) % 2
    model = Softmax(backbones.small_cnn(1, 4), 2)
    rs.fit(model, (images, labels), epochs=1, progress=False)
    rs.fit(model, (255 * images, labels), (255 * images, labels), epochs=1, calibrated=True, progress=False)
    assert model.input_spec.largest > 200
    assert len(model.predict(255 * images).labels) == 40


def data_module(data):
    import lightning

    class Module(lightning.LightningDataModule):
        def train_dataloader(self):
            return DataLoader(data[0], 64, shuffle=True)

        def val_dataloader(self):
            return DataLoader(data[1], 64)

    return Module()


@pytest.mark.slow
class TestKindsOfData:
    def test_data_set_and_loader_give_the_same(self, digits):
        reports = []
        for data, size in ((digits[0], 64), (DataLoader(digits[0], 64, shuffle=True), None)):
            reports.append(quick(network(), data, batch_size=size).last["loss"])
        assert reports[0] == reports[1]

    def test_lightnings_data_module(self, digits):
        report = quick(network(), data_module(digits), epochs=2)
        assert report.last["val_accuracy"] > 0.1
        assert report.calibration is not None

    def test_mappings(self, digits):
        x, y = digits[0].tensors

        class Named(nn.Module):
            num_features = 64

            def forward(self, pixels):
                return pixels

        batches = [{"pixels": x[i : i + 50], "labels": y[i : i + 50]} for i in range(0, 200, 50)]
        report = quick(rs.RandomSetNetwork(Named(), BUDGET), batches, batches)
        assert report.last["step"] == 4

    def test_options_of_lightnings_trainer(self, digits):
        from lightning import Callback

        class Counter(Callback):
            steps = 0

            def on_train_batch_end(self, *_):
                Counter.steps += 1

        quick(
            network(), digits[0], callbacks=[Counter()], limit_train_batches=3, accelerator="cpu", devices=1
        )
        assert Counter.steps == 3


class TestMistakes:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"epochs": 0}, "epochs"),
            ({"recipe": "slow"}, "paper, fast"),
            ({"resume": True}, "require a run folder"),
            ({"keep": "best"}, "require a run folder"),
            ({"keep": "worst"}, "'last' or 'best'"),
            ({"calibrated": True}, "no validation data"),
            ({"max_epochs": 3}, "epochs="),
            ({"alpha": 0.1}, "RandomSetLoss"),
            ({"lr": 0.1}, "learning_rate"),
            ({"speed": 9}, "lightning.Trainer"),
        ],
    )
    def test_options(self, digits, options, message):
        with pytest.raises(RandomSetError, match=message):
            quick(network(), digits[0], **options)

    def test_keeping_the_best_requires_validation_data(self, digits, tmp_path):
        with pytest.raises(RandomSetError, match="no validation data"):
            quick(network(), digits[0], keep="best", out=tmp_path)

    def test_a_stream_needs_a_schedule_without_an_end(self, digits):
        class Stream(IterableDataset):
            def __iter__(self):
                yield from digits[0]

        with pytest.raises(RandomSetError, match="max_steps"):
            quick(network(), Stream())
        report = quick(network(), Stream(), recipe=rs.Recipe(schedule="constant"), epochs=2)
        assert report.last["step"] == 26
        assert quick(network(), Stream(), max_steps=5).last["step"] == 5

    def test_no_data(self, digits, tmp_path):
        with pytest.raises(ShapeError, match="the training data are empty"):
            quick(network(), [])
        with pytest.raises(ShapeError, match="the validation data are empty"):
            quick(network(), digits[0], [])
        (tmp_path / "file").write_text("x")
        with pytest.raises(RandomSetError, match="cannot write the output"):
            quick(network(), digits[0], out=tmp_path / "file")

    def test_labels_that_cannot_be_calibrated_on(self, digits):
        x, _ = digits[0].tensors
        masses = TensorDataset(x, torch.eye(13)[torch.arange(len(x)) % 13])
        with pytest.warns(RandomSetWarning, match="calibration skipped"):
            assert quick(network(), masses, masses).calibration is None

    def test_two_tensors(self, digits):
        x, y = digits[0].tensors
        expected = quick(network(), digits[0], digits[1]).last["loss"]
        assert quick(network(), (x, y), digits[1].tensors).last["loss"] == expected
        with pytest.raises(RandomSetError, match="TensorDataset"):
            quick(network(), x, y)
        with pytest.raises(ShapeError, match=r"different lengths; got \[800, 5\]"):
            quick(network(), (x, y[:5]))
        with pytest.raises(RandomSetError, match="cannot be combined with a data loader"):
            quick(network(), DataLoader(digits[0], 8), batch_size=3)

    def test_divergence_is_reported(self, digits):
        with pytest.warns(RandomSetWarning, match="diverged"):
            quick(network(), digits[0], epochs=3, learning_rate=100.0)
        x, y = digits[0].tensors
        with pytest.raises(RandomSetError, match=r"diverged.*nan"):
            quick(network(), (torch.full_like(x, torch.nan), y))

    def test_no_loss(self, digits):
        with pytest.raises(RandomSetError, match=r"CrossEntropyLoss"):
            quick(nn.Linear(64, 10), digits[0])

    def test_no_labels(self, digits):
        with pytest.raises(LabelError, match="must have labels"):
            quick(network(), TensorDataset(digits[0].tensors[0]))

    def test_validation_data_twice(self, digits):
        with pytest.raises(RandomSetError, match="twice"):
            quick(network(), data_module(digits), digits[1])

    def test_without_lightning(self, digits, monkeypatch):
        import sys

        monkeypatch.setitem(sys.modules, "lightning", None)
        with pytest.raises(ImportError, match=r"randomset\[train\]"):
            quick(network(), digits[0])


@pytest.mark.slow
class TestDetails:
    def test_doubles_and_numpy(self, digits):
        x, y = digits[0].tensors
        assert quick(network(), TensorDataset(x.double(), y)).last["loss"] > 0
        report = quick(network().double(), digits[0], digits[1], precision="64-true")
        assert report.calibration is not None

    def test_ctrl_c_without_a_folder_is_a_keyboard_interrupt(self, digits):
        from lightning import Callback

        class Interrupted(Callback):
            def on_train_batch_end(self, *_):
                raise KeyboardInterrupt

        handler = signal.getsignal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            quick(network(), digits[0], callbacks=[Interrupted()])
        assert signal.getsignal(signal.SIGINT) is handler


def test_a_checkpoint_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(RandomSetError, match=r"no checkpoint to resume from; got .*home/other\.ckpt"):
        quick(network(), (torch.zeros(4, 64), torch.arange(4)), out=tmp_path / "run", resume="~/other.ckpt")


class TestBaselines:
    """Every classifier is trained, saved and calibrated by the same calls as a random-set network."""

    def softmax(self, seed=0):
        torch.manual_seed(seed)
        return Softmax(backbones.mlp(64, (32,)), 10)

    def test_a_run_folder_holds_the_model(self, digits, tmp_path):
        model = self.softmax()
        quick(model, *digits, epochs=2, out=tmp_path)
        again = load_model(tmp_path)
        x, _ = digits[1].tensors
        assert type(again) is Softmax
        assert not again.training
        assert torch.equal(again.predict(x).probabilities, model.predict(x).probabilities)

    def test_calibration_only_where_asked_for(self, digits, tmp_path):
        model = self.softmax()
        assert quick(model, *digits).calibration is None
        assert model.temperature == 1
        report = quick(model, *digits, calibrated=True, out=tmp_path)
        assert report.calibration.samples == 300
        assert model.temperature.item() == pytest.approx(report.calibration.temperature[0])
        assert torch.equal(load_model(tmp_path).temperature, model.temperature)


class TestMode:
    """After `fit`, nothing that a caller does changes the running statistics of the network."""

    def models(self):
        def backbone():
            torch.manual_seed(0)
            return nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU())

        return rs.RandomSetNetwork(backbone(), BUDGET), Softmax(backbone(), 10)

    def test_fit_ends_in_evaluation_mode(self, digits):
        for model in self.models():
            quick(model.train(), digits[0])
            assert not any(part.training for part in model.modules())

    def test_evaluation_mode_after_an_error_too(self, digits):
        from lightning import Callback

        class Failing(Callback):
            def on_train_batch_end(self, *_):
                raise RuntimeError("failed")

        model = self.models()[0]
        with pytest.raises(RuntimeError, match="failed"):
            quick(model, digits[0], callbacks=[Failing()])
        assert not model.training

    def test_log_probabilities_after_fit_change_nothing(self, digits):
        x, _ = digits[1].tensors
        for model in self.models():
            quick(model, digits[0])
            before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            answer = probabilities_of(model, x)
            logits = model.as_logits()
            assert not any(part.training for part in logits.modules())
            found = logits(x)
            assert torch.allclose(found.softmax(1), answer, atol=1e-6)
            assert torch.equal(found, logits(x))
            assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
            assert torch.equal(probabilities_of(model, x), answer)

    def test_log_probabilities_of_a_model_in_training_mode(self):
        for model in self.models():
            x = torch.randn(20, 64)
            expected = model.eval().as_logits()(x)
            assert torch.equal(model.train().as_logits()(x), expected)
