"""The OpenVINO provider: what it takes, and what it is given."""
