"""Finders of personal data. Each gives spans (start, end) of a text; its time grows with the text's length alone."""
