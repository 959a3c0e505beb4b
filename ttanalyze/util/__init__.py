"""Helpers that need no run: paths of the native libraries, safe opening of files, progress."""
