"""`memcfg lengths`: how long the documents of a data set are, and what each `truncation.max_length` would cost.

measure    from a request to the lengths of its documents
profile    what follows from lengths alone: distribution, candidates, a recommendation
text       the profile for a terminal
pictures   the profile as an HTML file, and as a PNG
"""
