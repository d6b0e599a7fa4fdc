"""What Python users call: `train`, models, callbacks, and the progress that they show."""
