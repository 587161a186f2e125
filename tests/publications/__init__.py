"""The public test suites of the publications, check by check: what each states, and what the same gives here."""
