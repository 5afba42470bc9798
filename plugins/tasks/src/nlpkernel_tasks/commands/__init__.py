"""The commands of this distribution. Light: what does the work is imported when they run."""
