"""The report of a training run."""

import pytest

from randomset.training import FitReport
from tests.training.conftest import network, quick


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
