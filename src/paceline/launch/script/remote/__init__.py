"""A script on many hosts: what its launcher asks, and what a supervisor and an agent do there."""
