"""Readers of what tools keep in files of their own: states, tables, databases, notebooks."""
