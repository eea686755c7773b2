"""A practice cluster of Linux namespaces on this machine."""
