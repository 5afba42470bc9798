"""Workers of other machines: keys, who may come in, and where servers listen for them."""
