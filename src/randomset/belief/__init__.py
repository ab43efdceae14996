"""The mathematics of belief functions on a budget of focal sets; torch only."""
