"""Gymnasium, both ways: its environments for our agents, and ours as Gymnasium's."""
