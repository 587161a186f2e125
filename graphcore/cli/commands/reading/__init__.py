"""Commands that read models and report."""
