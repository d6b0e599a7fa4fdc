"""How fast it is: our agents beside a matrix product and other libraries, and where the time goes."""
