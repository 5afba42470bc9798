"""A server process: one shard of the parameters, and on the first the coordinator."""
