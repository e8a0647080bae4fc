"""Side information: what is known about users, rows and items beside the rewards."""
