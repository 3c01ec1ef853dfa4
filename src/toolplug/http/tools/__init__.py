"""Tools over HTTP: listed, called, explained."""
