"""Extensions of the protocol that plugins have: for clients, and for servers."""
