"""One call of a model: feeds are checked, batches cut, arrays bound, failures put into words."""
