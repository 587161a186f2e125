"""Arrays that compute at once, and the dispatch of functions between them and Symbols."""
