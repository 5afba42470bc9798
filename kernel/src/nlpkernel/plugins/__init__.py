"""Plugins: found by metadata, loaded when a plan names them, asked through hooks."""
