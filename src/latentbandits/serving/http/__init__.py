"""The HTTP service: messages, endpoints and the server around the engine."""
