"""Preprocessing as a part of the weights of the products that read it."""
