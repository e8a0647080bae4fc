"""What a model is worth: held-out score, replay, verdict, report."""
