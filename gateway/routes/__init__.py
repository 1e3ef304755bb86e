"""What a client can ask for: the edge that sorts requests, and one module a group of routes."""
