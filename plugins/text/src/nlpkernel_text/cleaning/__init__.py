"""What the stages of a plan make of the documents, and the documents as they are kept."""
