"""Makes the pages of docs/ that follow from the code: python -m docs.tools."""
