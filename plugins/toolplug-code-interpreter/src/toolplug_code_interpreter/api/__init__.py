"""The HTTP API of containers and their files, `/v1/containers`, in OpenAI's shapes."""
