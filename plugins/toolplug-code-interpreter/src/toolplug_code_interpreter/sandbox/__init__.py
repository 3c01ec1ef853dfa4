"""The sandbox of a container: bubblewrap, the filter of system calls, limits, and the worker that runs the code."""
