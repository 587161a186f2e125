"""Layers other than matrix products, which are quantised before the products.

LSTMs, GRUs and RNNs (`recurrent`), and convolutions (`convolutions`) by the ranges of samples, put into a new graph
(`replacing`).
"""
