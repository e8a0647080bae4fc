"""Learn from side information: attributes of users, features of rows, attributes of items."""
