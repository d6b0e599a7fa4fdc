"""One run, or several side by side: an agent joined to an environment."""
