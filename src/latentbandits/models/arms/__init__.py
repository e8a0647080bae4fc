"""Actions with independent parameters, one file per reward family."""
