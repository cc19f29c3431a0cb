"""How the demo checkpoint is trained. Nothing here is imported by the server."""
