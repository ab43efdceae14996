"""Resuming: from any checkpoint to the weights of a run that never stopped; damaged ones are refused."""

import random
import shutil
import signal

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler

import randomset as rs
from randomset import backbones
from randomset.errors import FileFormatError, RandomSetError, RandomSetWarning
from randomset.training import FitReport, TrainingStopped
from tests.training.conftest import (
    BUDGET,
    assert_same,
    network,
    quick,
    run_checkpoints,
    small_network,
    train_small,
)

pytestmark = pytest.mark.slow


def without_speed(history):
    return [{k: v for k, v in row.items() if k != "samples_per_second"} for row in history]


class TestExactResume:
    @pytest.mark.parametrize("validated", [True, False])
    @pytest.mark.parametrize("recipe", ["fast", "paper", "speed"])
    def test_from_every_checkpoint(self, small_digits, tmp_path, monkeypatch, validated, recipe):
        kept = []
        write = run_checkpoints()._write

        def keeping(self, trainer, name, **options):
            write(self, trainer, name, **options)
            if name == "last.ckpt":
                kept.append(tmp_path / f"{len(kept)}.ckpt")
                shutil.copyfile(self.folder / name, kept[-1])

        monkeypatch.setattr(run_checkpoints(), "_write", keeping)
        data = small_digits if validated else small_digits[:1]
        whole = small_network()
        report = train_small(whole, *data, out=tmp_path / "whole", checkpoint_steps=1, recipe=recipe)
        places = list(kept)
        assert len(places) == 3 * 4  # after each of the first three of four batches, and after the epoch
        for place in places:
            again = small_network()
            resumed = train_small(again, *data, out=tmp_path / "again", resume=place, recipe=recipe)
            assert_same(whole, again)
            assert without_speed(resumed.history) == without_speed(report.history)

    def test_resuming_with_a_data_loader(self, small_digits, tmp_path, monkeypatch):
        data = DataLoader(small_digits[0], 64, shuffle=True)
        whole = small_network()
        train_small(whole, data)
        stopped = small_network()
        with monkeypatch.context() as patch:
            patch.setattr(run_checkpoints(), "on_train_batch_end", _stop_at(4))
            with pytest.raises(TrainingStopped, match="resume=True"):
                train_small(stopped, data, out=tmp_path)
        again = small_network()
        train_small(again, data, out=tmp_path, resume=True)
        assert_same(whole, again)

    def test_convolutions_that_muon_trains(self, tmp_path, monkeypatch):
        data = TensorDataset(torch.rand(80, 1, 16, 16), torch.arange(80) % 10)

        def convolutional():
            torch.manual_seed(0)
            return rs.RandomSetNetwork(backbones.fast_cnn(1, 4), BUDGET)

        whole, stopped, again = convolutional(), convolutional(), convolutional()
        options = {"recipe": "speed", "epochs": 2, "batch_size": 20}
        quick(whole, data, **options)
        with monkeypatch.context() as patch:
            patch.setattr(run_checkpoints(), "on_train_batch_end", _stop_at(6))
            with pytest.raises(TrainingStopped):
                quick(stopped, data, out=tmp_path, **options)
        quick(again, data, out=tmp_path, resume=True, **options)
        assert_same(whole, again)

    def test_resuming_a_finished_run_changes_nothing(self, small_digits, tmp_path):
        first = small_network()
        report = train_small(first, *small_digits, out=tmp_path)
        again = small_network()
        resumed = train_small(again, *small_digits, out=tmp_path, resume=True)
        assert_same(first, again)
        assert without_speed(resumed.history) == without_speed(report.history)

    def test_more_epochs_where_the_schedule_allows_it(self, small_digits, tmp_path):
        recipe = rs.Recipe(schedule="constant")
        whole = small_network()
        train_small(whole, *small_digits, recipe=recipe, epochs=5)
        part = small_network()
        train_small(part, *small_digits, recipe=recipe, epochs=2, out=tmp_path)
        again = small_network()
        report = train_small(again, *small_digits, recipe=recipe, epochs=5, out=tmp_path, resume=True)
        assert_same(whole, again)
        assert len(report.history) == 5
        assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 6

    def test_without_a_checkpoint_training_starts(self, small_digits, tmp_path):
        assert len(train_small(small_network(), *small_digits, out=tmp_path, resume=True).history) == 3

    @pytest.mark.parametrize("workers", [0, 1])
    def test_random_transforms(self, small_digits, tmp_path, monkeypatch, workers):
        assert_resumes_exactly(
            monkeypatch, tmp_path, lambda: (Noisy(small_digits[0]), small_digits[1]), workers=workers
        )

    def test_other_samplers_from_the_last_epoch(self, small_digits, tmp_path, monkeypatch):
        sampler = WeightedRandomSampler(torch.rand(200, generator=torch.Generator().manual_seed(0)), 200)
        assert_resumes_exactly(
            monkeypatch, tmp_path, lambda: (DataLoader(small_digits[0], 64, sampler=sampler),)
        )

    def test_data_modules_from_the_last_epoch(self, small_digits, tmp_path, monkeypatch):
        from lightning import LightningDataModule

        class Module(LightningDataModule):
            def train_dataloader(self):
                return DataLoader(small_digits[0], 64, shuffle=True)

            def val_dataloader(self):
                return DataLoader(small_digits[1], 64)

        assert_resumes_exactly(monkeypatch, tmp_path, lambda: (Module(),))

    def test_accumulated_gradients(self, small_digits, tmp_path, monkeypatch):
        options = {"accumulate_grad_batches": 2, "checkpoint_steps": 1}
        assert_resumes_exactly(monkeypatch, tmp_path, lambda: small_digits, **options)

    @pytest.mark.parametrize(
        "options",
        [
            {"augment": "mixup", "ema": 0.9, "class_weight": "balanced"},
            {"augment": "photos+mixup", "sampling": "balanced", "class_weight": {"3": 2.0}},
        ],
        ids=["table", "images"],
    )
    def test_augmentation_averages_and_balance(self, small_digits, tmp_path, monkeypatch, options):
        def data():
            if "photos" not in options["augment"]:
                return small_digits
            return tuple(TensorDataset(x.view(-1, 1, 8, 8), y) for x, y in (d.tensors for d in small_digits))

        def flat_network():
            torch.manual_seed(0)
            backbone = torch.nn.Sequential(
                torch.nn.Flatten(), torch.nn.Linear(64, 16), torch.nn.BatchNorm1d(16)
            )
            return rs.RandomSetNetwork(backbone, BUDGET, in_features=16)

        monkeypatch.setattr("tests.training.test_resuming.small_network", flat_network)
        assert_resumes_exactly(monkeypatch, tmp_path, data, checkpoint_steps=1, **options)

    def test_epochs_that_are_cut_short(self, small_digits, tmp_path, monkeypatch):
        assert_resumes_exactly(monkeypatch, tmp_path, lambda: small_digits, step=7, limit_train_batches=3)

    def test_the_network_may_be_calibrated_already(self, small_digits, tmp_path):
        recipe = rs.Recipe(schedule="constant")
        model = small_network()
        train_small(model, *small_digits, out=tmp_path, recipe=recipe, epochs=2)
        assert model.calibration is not None
        train_small(model, *small_digits, out=tmp_path, recipe=recipe, epochs=3, resume=True)
        whole = small_network()
        train_small(whole, *small_digits, recipe=recipe)
        assert_same(whole, model)


class Noisy(Dataset):
    """Adds noise to what it gives, as a random transform does."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, place):
        x, y = self.data[place]
        return x + 0.1 * torch.randn(64) + 0.1 * random.random(), y


def assert_resumes_exactly(monkeypatch, folder, make_data, step=9, **options):
    """Train in one go; train until a step, stop, go on; compare."""
    whole = small_network()
    train_small(whole, *make_data(), out=folder / "whole", **options)
    with monkeypatch.context() as patch:
        patch.setattr(run_checkpoints(), "on_train_batch_end", _stop_at(step))
        with pytest.raises(TrainingStopped):
            train_small(small_network(), *make_data(), out=folder / "part", **options)
    torch.rand(5)
    random.random()
    again = small_network()
    train_small(again, *make_data(), out=folder / "part", resume=True, **options)
    assert_same(whole, again)


def _stop_at(step):
    original = run_checkpoints().on_train_batch_end

    def stopping(self, trainer, engine, *arguments):
        epoch, batch = trainer.current_epoch, trainer.fit_loop.epoch_loop.batch_progress.current.ready
        if epoch * trainer.num_training_batches + batch >= step:
            self.received = signal.SIGTERM
        original(self, trainer, engine, *arguments)

    return stopping


class TestFiles:
    @pytest.fixture
    def run(self, small_digits, tmp_path):
        train_small(small_network(), *small_digits, out=tmp_path)
        return tmp_path / "checkpoints"

    @pytest.mark.parametrize("size", [0, 1, 100, 0.5, -1])
    def test_the_checkpoint_before_a_truncated_one(self, small_digits, run, size):
        whole = (run / "last.ckpt").read_bytes()
        cut = whole[: int(size * len(whole)) if size == 0.5 else size]
        (run / "last.ckpt").write_bytes(cut)
        before = (run / "previous.ckpt").read_bytes()
        with pytest.raises(FileFormatError, match=r"damaged or not a checkpoint.*last\.ckpt"):
            train_small(small_network(), *small_digits, out=run.parent, resume=run / "last.ckpt")
        assert (run / "last.ckpt").read_bytes() == cut
        model = small_network()
        with pytest.warns(
            RandomSetWarning, match=r"last\.ckpt.*Resuming from .*previous\.ckpt, after epoch 2"
        ):
            assert len(train_small(model, *small_digits, out=run.parent, resume=True).history) == 3
        assert (run / "previous.ckpt").read_bytes() == before  # and not the one that is worse
        again = small_network()
        train_small(again, *small_digits, out=run.parent, resume=True)
        assert_same(model, again)

    def test_a_flipped_bit_in_the_weights(self, small_digits, run):
        """torch does not notice, and would resume with other weights."""
        whole = bytearray((run / "last.ckpt").read_bytes())
        weights = torch.load(run / "last.ckpt", weights_only=True)["state_dict"][
            "module.head.layers.0.weight"
        ]
        place = whole.index(weights.numpy().tobytes())
        whole[place + 2] ^= 1
        (run / "last.ckpt").write_bytes(whole)
        assert torch.load(run / "last.ckpt", weights_only=True)
        with pytest.warns(RandomSetWarning, match=r"is damaged\. Resuming from .*previous\.ckpt"):
            train_small(small_network(), *small_digits, out=run.parent, resume=True)

    def test_no_good_checkpoint(self, small_digits, run):
        for name in ("last.ckpt", "previous.ckpt"):
            (run / name).write_bytes(b"half")
        kept = {path: path.read_bytes() for path in run.parent.rglob("*") if path.is_file()}
        with pytest.raises(
            FileFormatError, match=r"last\.ckpt.*previous\.ckpt.*Start again in another folder"
        ):
            train_small(small_network(), *small_digits, out=run.parent, resume=True)
        assert {path: path.read_bytes() for path in run.parent.rglob("*") if path.is_file()} == kept

    def test_a_missing_last_checkpoint(self, small_digits, run):
        (run / "last.ckpt").unlink()
        with pytest.warns(RandomSetWarning, match=r"no checkpoint to resume from.*previous\.ckpt"):
            assert len(train_small(small_network(), *small_digits, out=run.parent, resume=True).history) == 3

    def test_fewer_epochs_than_were_trained(self, small_digits, tmp_path):
        recipe = rs.Recipe(schedule="constant")
        train_small(small_network(), *small_digits, out=tmp_path, recipe=recipe)
        with pytest.raises(RandomSetError, match=r"more epochs than requested; got epochs=2; expected 3"):
            train_small(small_network(), *small_digits, out=tmp_path, recipe=recipe, epochs=2, resume=True)

    def test_checkpoints_of_other_programs(self, small_digits, run):
        for content in ({"state_dict": {}}, [1, 2], {"randomset": {"format": "other"}}):
            torch.save(content, run / "last.ckpt")
            with pytest.raises(FileFormatError, match=r"not written by randomset.*last\.ckpt"):
                train_small(small_network(), *small_digits, out=run.parent, resume=run / "last.ckpt")

    def test_a_checkpoint_never_runs_code(self, small_digits, run, tmp_path):
        class Evil:
            def __reduce__(self):
                return (exec, (f"open({str(tmp_path / 'evil')!r}, 'w')",))

        torch.save({"randomset": Evil()}, run / "last.ckpt")
        with pytest.raises(FileFormatError, match=r"last\.ckpt"):
            train_small(small_network(), *small_digits, out=run.parent, resume=run / "last.ckpt")
        assert not (tmp_path / "evil").exists()

    def test_a_checkpoint_of_another_network(self, small_digits, run):
        other = small_network(rs.Budget.from_sets([{3, 8}], 10))
        with pytest.raises(FileFormatError, match="a different network"):
            train_small(other, *small_digits, out=run.parent, resume=True)
        swapped = small_network(rs.Budget.from_sets([{2, 8}, {4, 9}, {1, 7, 8}], 10))  # the same shapes
        with pytest.raises(RandomSetError, match=r"(different network|another budget)"):
            train_small(swapped, *small_digits, out=run.parent, resume=True)

    def test_another_recipe_or_seed(self, small_digits, run):
        with pytest.raises(RandomSetError, match="batch_size 64 → 32"):
            train_small(small_network(), *small_digits, out=run.parent, resume=True, batch_size=32)
        with pytest.raises(RandomSetError, match="the seed differs"):
            train_small(small_network(), *small_digits, out=run.parent, resume=True, seed=1)

    @pytest.mark.parametrize(
        "change", [{"ema": 0.9}, {"augment": "mixup"}, {"sampling": "balanced"}, {"class_weight": {"3": 2.0}}]
    )
    def test_another_way_to_train(self, small_digits, run, change):
        with pytest.raises(RandomSetError, match=f"a different recipe; got {next(iter(change))} "):
            train_small(small_network(), *small_digits, out=run.parent, resume=True, **change)

    def test_other_data_or_other_frozen_parts(self, small_digits, run):
        with pytest.raises(
            RandomSetError, match=r"training data differ from those of the checkpoint.*'samples': 100"
        ):
            train_small(small_network(), small_digits[1], small_digits[1], out=run.parent, resume=True)
        with pytest.raises(RandomSetError, match="Freeze the same parts"):
            train_small(small_network().freeze_backbone(), *small_digits, out=run.parent, resume=True)

    def test_an_incomplete_checkpoint(self, small_digits, run):
        content = torch.load(run / "last.ckpt", weights_only=True)
        del content["randomset"]["seed"]
        torch.save(content, run / "last.ckpt")
        with pytest.raises(FileFormatError, match=r"incomplete or invalid.*last\.ckpt"):
            train_small(small_network(), *small_digits, out=run.parent, resume=run / "last.ckpt")

    def test_a_run_is_not_overwritten(self, small_digits, run):
        before = (run / "last.ckpt").read_bytes()
        with pytest.raises(FileFormatError, match="resume=True"):
            train_small(small_network(), *small_digits, out=run.parent)
        assert (run / "last.ckpt").read_bytes() == before

    def test_a_missing_path(self, small_digits, run):
        with pytest.raises(FileFormatError, match="no checkpoint"):
            train_small(small_network(), *small_digits, out=run.parent, resume=run / "none.ckpt")


@pytest.mark.slow
class TestText:
    def test_the_report_is_of_the_weights_that_were_kept(self, digits, tmp_path):
        from lightning.pytorch.callbacks import EarlyStopping

        stopping = EarlyStopping("val_loss", patience=0, min_delta=10.0)
        report = quick(network(), *digits, epochs=6, callbacks=stopping, out=tmp_path, keep="best")
        assert str(report).startswith(f"2 epochs of 6, stopped early, kept epoch {int(report.best['epoch'])}")


class TestReport:
    ROWS = [  # noqa: RUF012
        {"epoch": 1, "loss": 0.9, "val_accuracy": 0.8, "val_loss": 0.5, "val_ece": 0.1},
        {"epoch": 2, "loss": 0.6, "val_accuracy": 0.9, "val_loss": 0.4, "val_ece": 0.2},
        {"epoch": 3, "loss": 0.5, "val_accuracy": 0.9, "val_loss": 0.6, "val_ece": 0.3},
    ]

    def test_the_best_epoch(self):
        report = FitReport(self.ROWS, planned=3)
        assert report.last["epoch"] == 3
        assert report.best["epoch"] == 2  # of the two with the highest accuracy, the one with the lower loss

    def test_the_text(self):
        report = FitReport(self.ROWS, planned=3)
        assert str(report) == "3 epochs, loss 0.5000, validation accuracy 90.00%, ECE 0.300"
        text = (
            "3 epochs of 5, stopped early, kept epoch 2, loss 0.6000, validation accuracy 90.00%, ECE 0.200"
        )
        assert str(FitReport(self.ROWS, planned=5, kept="best")) == text
        assert str(FitReport([{"epoch": 1, "loss": 0.25}], planned=1)) == "1 epoch, loss 0.2500"

    def test_as_a_table(self):
        frame = FitReport(self.ROWS).to_frame()
        assert frame["loss"].tolist() == [0.9, 0.6, 0.5]
