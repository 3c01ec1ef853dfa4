"""Limits that hold for all processes of a store together: `scope: cluster`."""
