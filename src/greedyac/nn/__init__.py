"""Networks as pytrees, what they say, and how they learn: layers, critics, distributions, policies, Adam."""
