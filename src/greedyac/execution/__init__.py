"""Many runs on many cores: what is run, how it is cut into chunks, and the workers that train them."""
