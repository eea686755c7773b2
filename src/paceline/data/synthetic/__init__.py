"""Stand-ins: data sets that are made up in seconds, in the very file formats of the real ones."""
