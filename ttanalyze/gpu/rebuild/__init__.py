"""Recorded work done again: its steps, their order, its memory and its code."""
