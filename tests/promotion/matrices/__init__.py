"""The dtypes that packages give, as literals."""
