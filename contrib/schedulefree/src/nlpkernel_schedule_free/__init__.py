"""AdamW and SGD without a schedule."""
