"""The question that promotion systems answer, and the rules that most of them share."""
