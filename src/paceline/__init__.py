"""Paceline trains one model on one machine or many, and tells where the time went."""

__version__ = "0.1.0"
