"""A run as a trace for Perfetto and chrome://tracing: all ranks and hosts on one clock."""
