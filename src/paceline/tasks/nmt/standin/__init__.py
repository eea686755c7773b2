"""Sentences composed from a grammar, in two languages."""
