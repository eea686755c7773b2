"""The tasks that Paceline ships, a folder each, and the contract that they keep. No torch here."""
