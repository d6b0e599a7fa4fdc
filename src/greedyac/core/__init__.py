"""What everything else stands on: errors, hyperparameter fields, spaces, random numbers, XLA. It knows no learning."""
