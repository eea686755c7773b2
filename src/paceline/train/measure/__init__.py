"""What an attempt records about itself: events, phases, probes, surroundings."""
