"""What a model does: debug sessions, profiles, and the placement of nodes on providers."""
