"""The applications that `benchmarks.server` serves: each module has one `app`."""
