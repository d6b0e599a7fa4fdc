"""Films of a policy at work, and what its agent thinks of the actions at each step."""
