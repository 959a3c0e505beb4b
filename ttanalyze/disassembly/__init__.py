"""Disassembles kernels into tables of instructions."""
