"""One script per claim of speed; each prints a ratio measured in one run."""
