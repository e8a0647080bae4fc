"""Close the loop: learn again from the service's log, judge, and activate only what is better."""
