"""What a run directory says: figures as plain data first, then words. Never imports torch."""
