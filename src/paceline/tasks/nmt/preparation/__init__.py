"""From archives or files of parallel text to pieces on disk."""
