"""What needs nothing of a run: where our libraries are, and files opened with care."""
