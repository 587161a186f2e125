"""Arrays of every dtype: casts with exact semantics, integers of any width, evaluation of constants, mapped files."""
