"""What people and programs read: numbers and words, tables, JSON, whole files."""
