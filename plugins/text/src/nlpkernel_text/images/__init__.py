"""Images that belong to texts: decoded once, brought to one size, and kept in the cache."""
