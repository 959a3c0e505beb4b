"""The machine code of kernels as tables of instructions."""
