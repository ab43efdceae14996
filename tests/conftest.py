"""Settings that hold for every test."""

import os

from hypothesis import HealthCheck, settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a model that is not here is an error at once
settings.register_profile(
    "randomset",
    deadline=None,  # machines are noisy
    max_examples=15 if os.environ.get("RANDOMSET_QUICK") else 40,  # `make quick` sets it
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("randomset")
