"""Embeddings of passages and the places where they are kept."""
