"""What must be right on every host before a run is paid for, and what to do about what is not."""
