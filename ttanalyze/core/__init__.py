"""Answers that several verbs need: what lies where, what came after what, what differs."""
