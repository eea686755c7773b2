"""What would make a run faster, and by how much: from its facts, by the model of a step."""
