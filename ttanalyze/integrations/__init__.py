"""What other programs import: names for tensors of PyTorch, control, the pytest plugin."""
