"""What a result is, how it is written, and what it was made with."""
