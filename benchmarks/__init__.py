"""How much toolplug costs, as ratios taken in one run: `make bench`, or `python -m benchmarks FAMILY…`."""
