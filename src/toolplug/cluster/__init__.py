"""Several processes that share one store: who runs, what they ask each other, and limits that hold for all together."""
