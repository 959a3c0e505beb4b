"""Output for people and programs: formatted text, tables, JSON, complete files."""
