"""The Responses API: `/v1/responses` (CONTRACT.md section 9)."""
