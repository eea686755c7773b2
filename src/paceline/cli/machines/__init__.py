"""Verbs about machines: those one has (hosts, lab), and those that engines and clouds rent out."""
