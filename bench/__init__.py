"""Benchmarks, run as `python -m bench.NAME`: a table, then one line of JSON."""
