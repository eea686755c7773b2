"""From archives or folders of photographs to shards."""
