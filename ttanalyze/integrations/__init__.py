"""Modules for other programs: names of PyTorch tensors, control of the recording, the pytest
plugin.
"""
