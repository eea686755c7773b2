"""Starting a script that is not Paceline's, observed: on this machine, or as others start it."""
