"""Several processes that share one store: who runs, what they ask each other, and limits that hold for all together."""

from toolplug.exports import loader, make_lister

HOMES = {
    "Follower": "toolplug.cluster.followed",
}
__getattr__ = loader("toolplug.cluster", HOMES)
__dir__ = make_lister("toolplug.cluster", HOMES)
