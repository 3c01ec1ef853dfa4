"""The confinement of a provider's process: what it may use, and what the kernel refuses."""
