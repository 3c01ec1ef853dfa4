"""Sessions: applications elsewhere lend their tools to a model, live."""
