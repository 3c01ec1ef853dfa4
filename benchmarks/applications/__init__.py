"""The applications that `benchmarks.server` serves: each module's `opened` gives one, ready to answer."""
