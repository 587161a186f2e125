"""Looking into a model: debug sessions, profiles, and the placement of nodes on providers."""
