"""What to draft next, and how much of it. Drafts only propose: no text depends on them."""
