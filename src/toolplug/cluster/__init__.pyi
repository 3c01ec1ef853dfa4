"""Several processes that share one store: who runs, what they ask each other, and limits that hold for all together."""

from toolplug.cluster.followed import Follower

__all__ = [
    "Follower",
]
