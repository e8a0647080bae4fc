"""Tables, claims and figures for the terminal, HTML and JSON."""
