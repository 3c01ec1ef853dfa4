"""The agentic loop of OpenResponses over any tool executor and any Chat Completions backend."""
