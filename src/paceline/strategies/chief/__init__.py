"""The chief: decisions, updates, the state that is not on servers."""
