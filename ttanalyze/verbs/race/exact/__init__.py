"""Races within one launch, from a trace of its instructions."""
