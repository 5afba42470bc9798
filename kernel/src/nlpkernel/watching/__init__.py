"""Looking at a run from beside: who is asked in which order, where its time goes, what its observers change."""
