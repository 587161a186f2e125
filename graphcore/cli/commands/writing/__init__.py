"""Commands that write models."""
