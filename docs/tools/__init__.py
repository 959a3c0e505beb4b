"""Makes the pages of docs/ that follow from the code, and what the site needs: make docs."""
