"""The lifecycles, held against the documents they come from."""
