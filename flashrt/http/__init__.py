"""HTTP: routes, streams, guards, sockets. The only room that knows quart and hypercorn."""
