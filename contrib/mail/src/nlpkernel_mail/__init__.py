"""E-mails of an mbox file as records."""
