"""Text to ids: tokenizers that are trained on the data, and those that are read from files. Light: the components
import what does the work when they are asked."""
