"""Execution of calls: the pipeline around a tool, its limits, approvals, results and accounting."""
