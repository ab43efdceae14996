"""Plumbing without a subject of its own: files, locks, checks, batches, progress, processes."""
