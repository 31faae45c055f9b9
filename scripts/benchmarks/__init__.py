"""Benchmarks of the runner: one module for each, real servers and processes, medians of alternating rounds."""
