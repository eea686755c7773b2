"""A few steps in a run that is thrown away: to plan from, and to see what a remedy brings."""
