"""Many runs: studies as files, the store that keeps their results, and the sweep that fills it."""
