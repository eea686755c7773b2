"""Training on many hosts over ssh: who is there, rounds, restarts, collecting."""
