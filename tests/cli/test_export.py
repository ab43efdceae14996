"""`randomset export`: the file says what the network says."""

import numpy as np
import pytest

import randomset
from tests.commands import run, run_here, threshold_of


@pytest.mark.slow
class TestExport:
    def test_images_in_known_out(self, trained):
        import onnxruntime

        folder, _ = trained
        out = run("export", "run", "--bytes", "--out", "small.onnx", cwd=folder)
        assert out.returncode == 0, out.stderr
        assert "Wrote small.onnx" in out.stdout
        assert "of the network's." in out.stdout
        assert out.stderr == ""
        session = onnxruntime.InferenceSession(str(folder / "small.onnx"))
        images = (randomset.data.load_source("digits").inputs[:20] * 255).byte()
        known, entropy = session.run(["known", "entropy"], {"inputs": images.numpy()})
        answer = randomset.RandomSetNetwork.load(folder / "run").predict(images)
        np.testing.assert_allclose(entropy, answer.entropy.numpy(), atol=1e-4)
        assert (known == threshold_of(folder / "run").known(answer.entropy).numpy()).all()

    def test_mistakes(self, trained, monkeypatch, capsys):
        folder, _ = trained
        for arguments, message in (
            (["run", "--format", "tflite"], "unknown format; got tflite; expected onnx or torch-export"),
            (["nowhere"], "nowhere"),
            (["run", "--out", "run"], "output path is a folder"),
        ):
            code, error = run_here(monkeypatch, capsys, "export", *arguments, cwd=folder)
            assert code == 2
            assert message in error
