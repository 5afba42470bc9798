"""Text that is read as training goes on."""
