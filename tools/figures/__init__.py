"""The figures of the documentation: light and dark variants, and the card for links."""
