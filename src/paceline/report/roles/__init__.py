"""Reports on runs whose processes have roles: what chief, workers and servers did."""
