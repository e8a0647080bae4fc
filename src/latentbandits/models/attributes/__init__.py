"""Attributes of users, rows and items: how named columns become numbers, and what they say."""
