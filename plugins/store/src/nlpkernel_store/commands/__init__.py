"""The commands `versions` and `rollback`. Light: torch is imported by those that look into tensors."""
