"""Other ways to share the work of a step than all-reduce: chief, workers and parameter servers."""
