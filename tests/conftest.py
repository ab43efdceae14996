"""Settings that hold for every test."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "randomset",
    deadline=None,  # machines are noisy
    max_examples=40,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("randomset")
