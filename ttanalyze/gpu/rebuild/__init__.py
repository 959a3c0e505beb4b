"""Repeats recorded work: its steps, their order, its memory and its code."""
