"""A worker of the parameter server."""
