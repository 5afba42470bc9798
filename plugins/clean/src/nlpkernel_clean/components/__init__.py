"""The stages as the plan sees them. Light: what does the work is imported when a stage is made."""
