"""From logs to models: completion, clusters, mixtures, and how wrong they may be."""
