"""What `flashrt bench` measures: the engine on one machine, with the bound beside each figure."""
