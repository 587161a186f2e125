"""Tests of the facts about graphs."""
