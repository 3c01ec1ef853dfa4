"""The Responses API: the loop of OpenResponses around a model and the tools of its caller."""
