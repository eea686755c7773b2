"""What is known of a run, as plain data and pure judgements. No words, no layout."""
