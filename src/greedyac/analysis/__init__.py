"""What results mean: figures of learning curves."""
