"""`flashrt inspect`: what a checkpoint holds and what it will need, before anything is loaded."""
