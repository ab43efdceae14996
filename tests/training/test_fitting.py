"""Training: it learns, it logs, it takes data of every kind, it says what is wrong."""

import csv
import signal

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import randomset as rs
from randomset import backbones
from randomset.errors import LabelError, RandomSetError, RandomSetWarning, ShapeError
from randomset.models import Softmax
from randomset.models import load as load_model
from randomset.models.calibration_error import calibration_error
from randomset.models.temperature import calibrate
from randomset.training import precision


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    x, y = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
    return TensorDataset(x[:800], y[:800]), TensorDataset(x[800:1100], y[800:1100])


BUDGET = rs.Budget.from_sets([{3, 8}, {4, 9}, {1, 7, 8}], 10)


def network(dropout=0.0):
    torch.manual_seed(0)
    return rs.RandomSetNetwork(backbones.mlp(64, (32,), dropout=dropout), BUDGET)


def quick(model, *data, **options):
    return rs.fit(model, *data, **{"epochs": 1, "batch_size": 64, "progress": False, **options})


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

    def test_the_measures_are_those_of_the_predictions(self, digits):
        model = network()
        row = quick(model, *digits, epochs=2).last
        x, y = digits[1].tensors
        answer = model.predict(x, calibrated=False)
        right = answer.labels == y
        assert row["val_accuracy"] == pytest.approx(right.float().mean().item())
        assert row["val_invalid"] == pytest.approx(answer.validity.repaired.float().mean().item())
        assert row["val_ece"] == pytest.approx(calibration_error(answer.confidence, right.float()), abs=1e-5)
        likelihood = answer.pignistic.gather(1, y[:, None]).log().mean()
        assert row["val_nll"] == pytest.approx(-likelihood.item(), rel=1e-4)
        assert row["val_loss"] == pytest.approx(rs.RandomSetLoss(BUDGET)(model.eval()(x), y).item(), rel=1e-3)

    def test_the_same_engine_trains_a_plain_network(self, digits):
        plain = nn.Sequential(backbones.mlp(64, (32,)), nn.Linear(32, 10))
        report = quick(plain, *digits, epochs=4, loss=nn.CrossEntropyLoss(), learning_rate=1e-2)
        assert report.last["val_accuracy"] > 0.85
        assert "val_invalid" not in report.last
        assert report.calibration is None

    def test_a_trained_classifier_is_not_destroyed(self, digits):
        torch.manual_seed(0)
        hidden = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        plain = nn.Sequential(hidden, nn.Linear(64, 10))
        before = quick(plain, *digits, epochs=8, loss=nn.CrossEntropyLoss()).last["val_accuracy"]
        tuned = rs.RandomSetNetwork.from_classifier(plain, BUDGET)
        after = quick(tuned, *digits, epochs=3).last["val_accuracy"]
        assert after > before - 0.05

    def test_the_report_is_of_the_weights_that_were_kept(self, digits, tmp_path):
        from lightning.pytorch.callbacks import EarlyStopping

        stopping = EarlyStopping("val_loss", patience=0, min_delta=10.0)
        report = quick(network(), *digits, epochs=6, callbacks=stopping, out=tmp_path, keep="best")
        assert str(report).startswith(f"2 epochs of 6, stopped early, kept epoch {int(report.best['epoch'])}")

    def test_a_seed_repeats_everything(self, digits):
        states = []
        for seed in (1, 1, 2):
            model = network(dropout=0.3)
            quick(model, digits[0], seed=seed)
            states.append(model.head.layers[0].weight.detach())
        assert torch.equal(states[0], states[1])
        assert not torch.equal(states[0], states[2])

    def test_torchs_generator_is_left_alone(self, digits):
        model = network()
        torch.manual_seed(7)
        state = torch.get_rng_state()
        quick(model, digits[0])
        assert torch.equal(torch.get_rng_state(), state)

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

    def test_augmentation_changes_the_path(self):
        x, y = torch.rand(64, 1, 8, 8), torch.arange(64) % 10
        losses = []
        for shift in (0.0, 0.3):
            torch.manual_seed(0)
            model = rs.RandomSetNetwork(backbones.small_cnn(1, 8, width=4), BUDGET)
            recipe = rs.Recipe.named("fast", shift=shift, flip=bool(shift), batch_size=16)
            losses.append(quick(model, TensorDataset(x, y), recipe=recipe, batch_size=None).last["loss"])
        assert losses[0] != losses[1]


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

    def test_a_logger_of_the_user(self, digits, tmp_path):
        from lightning.pytorch.loggers import CSVLogger

        quick(network(), *digits, logger=CSVLogger(tmp_path, name="mine", version=""), out=tmp_path / "run")
        assert "val_accuracy" in (tmp_path / "mine" / "metrics.csv").read_text()
        assert "val_accuracy" in (tmp_path / "run" / "metrics.csv").read_text()


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

    def test_the_best_of_no_validation(self, digits, tmp_path):
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

    def test_divergence_is_told(self, digits):
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
    def test_ignored_labels_of_the_loss_are_ignored_everywhere(self, digits):
        x, y = digits[1].tensors
        for index in (-1, 255):
            marked = torch.cat((y[:100], torch.full((200,), index)))
            model = network()
            loss = rs.RandomSetLoss(BUDGET, ignore_index=index)
            row = quick(model, digits[0], TensorDataset(x, marked), loss=loss, epochs=2)
            expected = quick(network(), digits[0], TensorDataset(x[:100], y[:100]), epochs=2)
            assert row.last["val_accuracy"] == pytest.approx(expected.last["val_accuracy"])
            assert row.calibration.samples == 100

    def test_doubles_and_numpy(self, digits):
        x, y = digits[0].tensors
        assert quick(network(), TensorDataset(x.double(), y)).last["loss"] > 0
        report = quick(network().double(), digits[0], digits[1], precision="64-true")
        assert report.calibration is not None

    def test_epochs_without_validation_have_no_values(self, digits):
        history = quick(network(), *digits, epochs=4, check_val_every_n_epoch=2).history
        assert ["val_accuracy" in row for row in history] == [False, True, False, True]

    def test_micro_batches_have_masks_of_their_own(self, digits):
        masks = []

        class Watching(nn.Module):
            num_features = 64

            def forward(self, x):
                dropped = nn.functional.dropout(torch.ones(64), 0.5, self.training)
                if self.training:
                    masks.append(dropped)
                return x * dropped

        model = rs.RandomSetNetwork(Watching(), BUDGET)
        quick(model, digits[0], accumulate_grad_batches=2)
        assert len({tuple(mask.tolist()) for mask in masks}) == len(masks) == 13

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


class TestPrecision:
    def test_no_bfloat16_where_the_cpu_has_none(self, monkeypatch):
        monkeypatch.setattr(precision, "cpu_has_bfloat16", lambda: False)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert precision.chosen_precision(None, "cpu") == "32-true"
        with pytest.warns(RandomSetWarning, match="no native bfloat16"):
            assert precision.chosen_precision("bf16-mixed", "cpu") == "32-true"
        assert precision.chosen_precision("64-true", "cpu") == "64-true"
        monkeypatch.setattr(precision, "cpu_has_bfloat16", lambda: True)
        assert precision.chosen_precision(None, "cpu") == "bf16-mixed"
        assert precision.chosen_precision("bf16-mixed", "cpu") == "bf16-mixed"

    def test_gpus_by_their_age(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        for new, expected in ((True, "bf16-mixed"), (False, "16-mixed")):
            monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda new=new, **_: new)
            assert precision.chosen_precision(None, "auto") == expected

    def test_mixed_precision_trains(self, digits, monkeypatch):
        model, seen = network(), set()
        layer = next(part for part in model.backbone.modules() if isinstance(part, nn.Linear))
        layer.register_forward_hook(lambda part, _, output: seen.add(output.dtype) if part.training else None)
        monkeypatch.setattr(precision, "cpu_has_bfloat16", lambda: True)
        report = quick(model, *digits, precision="bf16-mixed", limit_train_batches=3)
        assert torch.tensor(report.last["loss"]).isfinite()
        assert seen == {torch.bfloat16}
        assert layer.weight.dtype == torch.float32


@pytest.mark.slow
class TestCalibration:
    @pytest.fixture
    def trained(self, digits):
        model = network()
        quick(model, digits[0], epochs=6, learning_rate=1e-2)
        return model

    def test_a_temperature_that_was_spoiled_is_found_again(self, digits, monkeypatch):
        monkeypatch.setattr("randomset.models.temperature._PRIOR_STD", 100.0)  # the likelihood alone
        torch.manual_seed(0)
        model = rs.RandomSetNetwork(backbones.mlp(64, (32,)), rs.Budget.singletons(10))
        quick(model, digits[0], epochs=6, learning_rate=1e-2)
        found = calibrate(model, digits[1]).temperature[0]
        model.head.layers[-1].weight.data *= 3
        model.head.layers[-1].bias.data *= 3
        report = calibrate(model, digits[1])
        assert report.temperature[0] == pytest.approx(3 * found, rel=0.05)
        assert report.nll[1] < report.nll[0]
        assert report.samples == 300

    def test_what_it_reports_is_so(self, digits, trained):
        report = calibrate(trained, digits[1])
        x, y = digits[1].tensors
        for number, calibrated in enumerate((False, True)):
            answer = trained.predict(x, calibrated=calibrated)
            right = (answer.labels == y).float()
            assert report.accuracy[number] == pytest.approx(right.mean().item())
            assert report.ece[number] == pytest.approx(calibration_error(answer.confidence, right), abs=1e-6)
            likelihood = -answer.pignistic.gather(1, y[:, None]).log().mean().item()
            assert report.nll[number] == pytest.approx(likelihood, abs=1e-5)
        assert "predictions changed" in str(report)

    def test_one_for_each_cardinality_is_no_less_likely(self, digits, trained):
        one = calibrate(trained, digits[1])
        several = calibrate(trained, digits[1], per_cardinality=True)
        assert several.nll[1] <= one.nll[1] + 1e-6
        assert len(several.temperature) in (1, 3)

    def test_where_decisions_would_change_the_order_is_kept(self):
        # The inputs are the logits. They are sure of themselves and right half of the time.
        model = rs.RandomSetNetwork(nn.Identity(), rs.Budget.powerset(4), in_features=15)
        model.head.layers[-1].weight.data = torch.eye(15)
        model.head.layers[-1].bias.data.zero_()
        torch.manual_seed(0)
        logits = 4 * torch.randn(600, 15)
        labels = torch.where(
            torch.arange(600) % 2 == 0, model.predict(logits).labels, torch.randint(4, (600,))
        )
        report = calibrate(model, TensorDataset(logits, labels))
        assert report.refused is not None
        assert report.refused > 5
        assert report.kind == "PignisticTemperature"
        assert report.changed == 0
        assert report.accuracy[0] == report.accuracy[1]
        assert report.nll[1] < report.nll[0]
        assert "would have changed" in str(report)

    def test_a_handful_of_perfect_samples_does_not_make_it_sure(self, digits, trained):
        x, y = digits[1].tensors
        right = trained.predict(x).labels == y
        few = TensorDataset(x[right][:30], y[right][:30])
        assert calibrate(trained, few).temperature[0] > 0.5

    def test_ignored_and_missing_labels(self, digits, trained):
        x, y = digits[1].tensors
        half = y.clone()
        half[150:] = -100
        expected = calibrate(trained, TensorDataset(x[:150], y[:150]))
        assert calibrate(trained, TensorDataset(x, half)) == expected
        with pytest.raises(LabelError, match="no data to calibrate on"):
            calibrate(trained, TensorDataset(x, torch.full_like(y, -100)))
        with pytest.raises(LabelError, match="calibration data have no labels"):
            calibrate(trained, TensorDataset(x))
        with pytest.raises(RandomSetError, match="only classifiers of randomset"):
            calibrate(nn.Linear(64, 10), digits[1])


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
