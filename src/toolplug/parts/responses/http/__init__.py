"""The Responses API: `/v1/responses` (docs/reference/responses.md)."""
