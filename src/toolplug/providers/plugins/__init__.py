"""Plugins: what they implement, their shapes, and the manager that has them."""
