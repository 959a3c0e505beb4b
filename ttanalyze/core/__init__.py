"""Analyses that several verbs share: alignment, digests, selection, tensors, values, writers."""
