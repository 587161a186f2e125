"""Call, cut and edit graphs: each function returns a new graph, or adds to one. See docs/howto/edit_model.md."""
