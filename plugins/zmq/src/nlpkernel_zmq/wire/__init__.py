"""NLPK/1: what the processes of a parameter server say to each other, as bytes. No socket, no clock, no run."""
