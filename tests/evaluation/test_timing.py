"""Prediction times."""

import pytest

from randomset.errors import RandomSetError
from randomset.evaluation.timing import in_turns, measure_time
from tests.evaluation.conftest import TEST, model, network


@pytest.mark.slow
class TestResult:
    def test_time(self, result):
        timing = result["timing"]
        for name in ("latency_ms", "throughput", "ratio_single", "ratio_batch"):
            assert 0 < timing[name]["low"] <= timing[name]["median"] <= timing[name]["high"]


class TestMeasureTime:
    def test_without_a_counterpart_there_is_no_ratio(self):
        found = measure_time(model, TEST[0], repeats=3, warm_up=1, batch_size=50)
        assert set(found) == {"batch_size", "repeats", "latency_ms", "throughput"}
        assert (found["batch_size"], found["repeats"]) == (50, 3)
        assert set(measure_time(network(), TEST[0], repeats=2)) == {*found, "ratio_single", "ratio_batch"}

    def test_calls_alternate(self):
        calls = []

        def called(name):
            def predict(inputs):
                calls.append(name)
                return model(inputs)

            return predict

        times = in_turns({"a": called("a"), "b": called("b")}, TEST[0][:1], rounds=2)
        assert calls == ["a", "b"] * 5  # three rounds to warm up
        assert all(time > 0 for time in times.values())

    def test_nothing_to_time(self):
        for inputs, repeats in ((TEST[0][:0], 3), (TEST[0], 0)):
            with pytest.raises(RandomSetError, match="nothing to time"):
                measure_time(model, inputs, repeats=repeats)
