"""What a step holds and gives, in numbers: samples, losses, work, exposed communication, scores."""
