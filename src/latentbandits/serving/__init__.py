"""The decision service: an engine without HTTP, its stores, and the app that translates."""
